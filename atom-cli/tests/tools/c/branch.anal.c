#include <stdio.h>

FILE *file;
struct BrInfo {
    long taken;
    long notTaken;
} *bstats;

void OpenFile(int n){
    bstats = (struct BrInfo *)
        malloc (n * sizeof(struct BrInfo));
    file = fopen("btaken.out", "w");
    fprintf(file, "PC \t Taken \t Not Taken\n");
}

void CloseFile(){
    fclose(file);
}

void CondBranch(int n, long taken){
    if (taken)
        bstats[n].taken++;
    else
        bstats[n].notTaken++;
}

void PrintBranch(int n, long pc){
    fprintf(file, "0x%lx \t %d \t %d\n",
        pc, bstats[n].taken, bstats[n].notTaken);
}
