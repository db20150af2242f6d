/* A simulator's half: it installs callbacks on behalf of a program that was compiled with -DARP_SIM. */
#include <atomium_rp.h>

static unsigned reads;

static void enter(const arp_sid sid, void *data, void *context)
{
    (void)sid;
    *(unsigned *)data = (*(unsigned *)context)++;
}

static void leave(const arp_sid sid, void *data, void *context)
{
    (void)sid;
    *(unsigned *)data = (*(unsigned *)context)++ - *(unsigned *)data;
}

extern void arpsim_add_callbacks(void);
extern void arpsim_start(const arp_tid, const arp_sid, const arp_mode);

void arpsim_add_callbacks(void)
{
    arp_add_callbacks(arp_uint, enter, leave, 0, 0, &reads);
}

void arpsim_start(const arp_tid tid, const arp_sid sid, const arp_mode mode)
{
    arp_start(tid, sid, mode, 0, 0, 0, 0, 0);
}
