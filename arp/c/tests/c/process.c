/* A function with one kernel, called once: each value of clock() is a long. */
#include <atomium_rp.h>
#include <stdio.h>
#include <time.h>

static void enter_callback(const arp_sid sid, void *data, void *context)
{
    (void)sid;
    (void)context;
    *(long *)data = clock();
}

static void leave_callback(const arp_sid sid, void *data, void *context)
{
    long entered = *(long *)data;
    (void)sid;
    (void)context;
    *(long *)data = clock() - entered;
}

static void raise_small_ones(int values[], int count, int limit)
{
    int i;

    arp_enter(1, 2, 0);
    arp_enter_kernel(1, 1, 0);
    for (i = 0; i < count; ++i) {
        if (values[i] < limit)
            values[i] += 10;
        printf("%d ", values[i]);
    }
    arp_leave_kernel(1, 1);
    printf("\n");
    arp_leave(1, 2);
}

int main(void)
{
    int values[] = { 9, 0, 1, 3, 4, 5, 6, 7 };

    arp_add_callbacks(arp_long, enter_callback, leave_callback, 0, 0, 0);
    arp_start(1, 2, arp_record_all, 0, 0, 0, 0, 0);
    raise_small_ones(values, 8, 5);
    arp_finish();
    return 0;
}
