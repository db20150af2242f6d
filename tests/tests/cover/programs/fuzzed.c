/* A program for a fuzzer: it does what the file says that its argument names. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned sum;
static int calls;

/* Appends a line to the file NOTES. It has no process number, whose digits would count: the next process may have one more. */
static void note(const char *what, int number)
{
    char line[80];
    const char *file = getenv("NOTES");
    int to = file ? open(file, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (to >= 0) {
        int length = snprintf(line, sizeof line, "%s %d\n", what, number);
        if (write(to, line, length) != length)
            _exit(9);
        close(to);
    }
}

__attribute__((constructor)) static void begin(void)
{
    note("begin", 0);
}

__attribute__((noinline)) void loop(int times)
{
    for (int i = 0; i < times; i++)
        sum += i * sum + 3;
}

__attribute__((noinline)) void elsewhere(void)
{
    loop(7);
    if (sum == 12345)
        note("elsewhere", 0);
}

static void *thread(void *unused)
{
    elsewhere();
    return unused;
}

__attribute__((noinline)) int once(const char *file)
{
    unsigned char input[16] = {0};
    int from = open(file, O_RDONLY);
    int status;
    pthread_t other;
    if (from < 0 || read(from, input, sizeof input) < 0)
        return 3;
    close(from);
    note("once", ++calls);
    switch (input[0]) {
    case 'l':
        loop(input[1]);
        break;
    case 'a':
        abort();
    case 's':
        *(volatile int *)8 = 1;
        break;
    case 'r':
        raise(SIGUSR1);
        break;
    case 'h':
        for (;;)
            sum++;
    case 'e':
        exit(7);
    case 'f':
        if (fork() == 0) {
            elsewhere();
            _exit(0);
        }
        wait(&status);
        break;
    case 't':
        if (pthread_create(&other, NULL, thread, NULL) == 0)
            pthread_join(other, NULL);
        break;
    }
    return 0;
}

int main(int count, char **words)
{
    int answer;
    note("main", 0);
    if (count < 2)
        return 2;
    answer = once(words[1]);
    note("end", 0);
    printf("%u\n", sum);
    return answer;
}
