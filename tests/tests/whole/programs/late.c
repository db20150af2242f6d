// A library that is opened while the program runs.
int far_plain(int n);

int late(int n) { return far_plain(n) + 1; }
