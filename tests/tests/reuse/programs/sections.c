// Static arrays of three sections, which have no symbols once the program is stripped.

static volatile long in_data[100] = {1, 2, 3};
static volatile long in_bss[200];
static const long in_rodata[100] = {4, 5, 6};

int main(void) {
    long sum = 0;
    for (int turn = 0; turn < 50; turn++)
        for (int i = 0; i < 100; i++)
            in_data[i] = turn;
    for (int turn = 0; turn < 70; turn++)
        for (int i = 0; i < 200; i++)
            sum += in_bss[i];
    for (int turn = 0; turn < 30; turn++)
        for (int i = 0; i < 100; i++)
            sum += *(const volatile long *)&in_rodata[i];
    return sum != 15 * 30;
}
