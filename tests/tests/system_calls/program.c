/* Makes system calls whose arguments and results are known, in the first thread and in another one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *thread(void *unused) {
    printf("%ld close(0x3e7, *) = -9\n", syscall(SYS_gettid));
    close(999);
    return unused;
}

int main(void) {
    int parent = getppid();
    char text[100];
    int length = sprintf(text, "%d getppid(*) = %d\n", getpid(), parent);
    write(1, text, length);
    printf("%d write(0x1, %#lx, %#x, *) = %d\n", getpid(), (unsigned long)text, length, length);
    fflush(stdout);
    pthread_t other;
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    printf("%d exit_group(0x7, *)\n", getpid());
    return 7;
}
