// A program for the picture of a time line: threads that work, wait and call the C library.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void fill(int *list, int n, unsigned seed) {
    for (int i = 0; i < n; i++)
        list[i] = (int)((seed = seed * 1103515245 + 12345) >> 8);
}

static void sort(int *list, int n) { qsort(list, n, sizeof *list, compare); }

static void rest(int ms) { usleep(ms * 1000); }

static void merge(int *list, int n) {
    pthread_mutex_lock(&lock);
    sort(list, n);
    pthread_mutex_unlock(&lock);
}

static void *work(void *number) {
    int list[300];
    for (int round = 0; round < 4; round++) {
        fill(list, 300, round + 7 * (int)(long)number);
        sort(list, 100);
        merge(list, 300);
        rest(1 + (int)(long)number);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
