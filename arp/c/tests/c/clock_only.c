/* A second file of a program. */
int not_used;
