/* Code of one source file in two object files, and in a library if there is one. */
static int shared(int n) {
    if (n > 1)
        return n + 1;
    return n;
}

#ifdef MAIN
int other(int n);

int main(void) {
    return shared(0) + other(0);
}
#else
int other(int n) {
    return shared(n);
}
#endif
