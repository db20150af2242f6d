/* Work for a compiler. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct node { struct node *left, *right; int key; double weight; char name[16]; } node;
static node *insert(node *n, int key)
{
    if (!n) { n = calloc(1, sizeof *n); n->key = key; n->weight = sqrt(key); snprintf(n->name, sizeof n->name, "n%d", key); return n; }
    if (key < n->key) n->left = insert(n->left, key);
    else if (key > n->key) n->right = insert(n->right, key);
    return n;
}
static double total(const node *n) { return n ? total(n->left) + n->weight + total(n->right) : 0; }
static int classify(int c)
{
    switch (c) {
    case 'a': case 'e': case 'i': case 'o': case 'u': return 1;
    case '0' ... '9': return 2;
    case ' ': case '\t': case '\n': return 3;
    case '+': return 4; case '-': return 5; case '*': return 6; case '/': return 7;
    default: return c > 127 ? 8 : 0;
    }
}
static void multiply(int n, double a[n][n], double b[n][n], double c[n][n])
{
    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) { c[i][j] = 0; for (int k = 0; k < n; k++) c[i][j] += a[i][k] * b[k][j]; }
}
static unsigned long hash(const char *s) { unsigned long h = 5381; while (*s) h = h * 33 ^ (unsigned char)*s++; return h; }
int main(void)
{
    node *root = NULL;
    int kinds[9] = { 0 };
    double a[8][8], b[8][8], c[8][8];
    for (int i = 0; i < 300; i++) root = insert(root, i * 7919 % 1009);
    for (const char *p = "the quick brown fox + 12 - 7 * 3 / 2"; *p; p++) kinds[classify((unsigned char)*p)]++;
    for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) { a[i][j] = i + j; b[i][j] = i - j; }
    multiply(8, a, b, c);
    printf("%.3f %d %d %.1f %lu\n", total(root), kinds[1], kinds[2], c[3][4], hash("work") % 1000);
    return 0;
}
