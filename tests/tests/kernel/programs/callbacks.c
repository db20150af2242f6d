/* Callbacks as the user may write them. */
#include <unistd.h>

struct counter { long calls; };
static struct counter all = { 0 };
struct counter *current = &all;
struct counter direct = { 1000 };

void numberBegin(const unsigned short sid, void *data, void *context)
{
    (void)sid;
    *(long *)data = ++((struct counter *)context)->calls;
}

void numberEnd(const unsigned short sid, void *data, void *context)
{
    (void)sid;
    *(long *)data += ((struct counter *)context)->calls * 100;
}

/* In playback: prints what was recorded. */
void show(const unsigned short sid, void *data, void *context)
{
    char text[32];
    int at = 31;
    unsigned long n = (unsigned long)*(long *)data;
    (void)sid;
    text[at] = '\n';
    do
        text[--at] = (char)('0' + n % 10);
    while (n /= 10);
    if (context && write(1, text + at, 32 - at) < 0)
        _exit(9);
}
