// Sections that are C++ objects: constructors enter, destructors leave, also when an exception passes.
#include "clock.h"
#include <stdexcept>

namespace {

struct Place {
    arp_sid sid;
    explicit Place(arp_sid s) : sid(s) { arp_enter(1, sid, 0); }
    ~Place() { arp_leave(1, sid); }
};

// Needs more stack than the other one, so stack pointers do not tell which function is the outer one.
struct Kernel {
    arp_sid sid;
    explicit Kernel(arp_sid s) : sid(s)
    {
        volatile char room[300];
        room[0] = 1;
        arp_enter_kernel(1, sid, 0);
    }
    ~Kernel() { arp_leave_kernel(1, sid); }
};

void descend(int depth)
{
    Place place(4);
    if (depth == 0)
        throw std::runtime_error("at the bottom");
    {
        Kernel kernel(1);
        ++ticks;
    }
    descend(depth - 1);
}

} // namespace

int main()
{
    arp_add_callbacks(arp_uint, enter_clock, leave_clock, 0, 0, 0);
    arp_start(1, 9, arp_record_all, 0, 0, 0, 0, 0);
    for (int i = 0; i < 2; ++i) {
        Place iteration(8);
        {
            Kernel kernel(2);
            Place inner(3);
            ++ticks;
        }
        try {
            descend(2);
        } catch (const std::exception &) {
            ++ticks;
        }
    }
    arp_finish();
    return 0;
}
