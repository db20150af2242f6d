// Nettle's ciphers and digests, and GMP's arithmetic, whose assembly jumps to computed addresses. NETTLE_FAT_OVERRIDE
// chooses Nettle's routines.
#include <gmp.h>
#include <nettle/nettle-meta.h>
#include <nettle/gcm.h>
#include <nettle/chacha-poly1305.h>
#include <nettle/sha1.h>
#include <stdio.h>
static uint8_t data[20000], out[20000];
static void show(const char *name, const uint8_t *p, size_t n)
{
    struct sha1_ctx c;
    uint8_t md[20];
    sha1_init(&c);
    sha1_update(&c, n, p);
    sha1_digest(&c, 20, md);
    printf("%s ", name);
    for (int i = 0; i < 20; i++) printf("%02x", md[i]);
    printf("\n");
}
static _Alignas(64) char context[1 << 16];
int main(void)
{
    for (size_t i = 0; i < sizeof data; i++) data[i] = i * i >> 2;
    for (int i = 0; nettle_get_hashes()[i]; i++) {
        const struct nettle_hash *h = nettle_get_hashes()[i];
        h->init(context);
        h->update(context, sizeof data, data);
        h->digest(context, h->digest_size, out);
        show(h->name, out, h->digest_size);
    }
    for (int i = 0; nettle_get_ciphers()[i]; i++) {
        const struct nettle_cipher *c = nettle_get_ciphers()[i];
        size_t n = sizeof data / c->block_size * c->block_size;
        c->set_encrypt_key(context, data + 9);
        c->encrypt(context, n, out, data);
        show(c->name, out, n);
        c->set_decrypt_key(context, data + 9);
        c->decrypt(context, n, out, data);
        show(c->name, out, n);
    }
    for (int i = 0; nettle_get_aeads()[i]; i++) {
        const struct nettle_aead *a = nettle_get_aeads()[i];
        size_t n = sizeof data / a->block_size * a->block_size;
        a->set_encrypt_key(context, data + 9);
        a->set_nonce(context, data + 77);
        if (a->update) a->update(context, a->block_size, data);
        a->encrypt(context, n, out, data);
        show(a->name, out, n);
        a->digest(context, a->digest_size, out);
        show(a->name, out, a->digest_size);
    }
    mpz_t a, b, c, d;
    mpz_inits(a, b, c, d, NULL);
    for (int n = 1; n < 6000; n = n * 5 / 3 + 1) {
        mpz_import(a, n, 1, 1, 0, 0, data + 11);
        mpz_import(b, n / 2 + 1, 1, 1, 0, 0, data + 999);
        mpz_mul(c, a, b);
        mpz_mul(d, a, a);
        mpz_add(c, c, d);
        mpz_sub(d, c, b);
        mpz_tdiv_qr(d, c, d, b);
        mpz_gcd(a, a, b);
        mpz_mul_2exp(d, d, n % 67);
        mpz_fdiv_q_2exp(d, d, n % 31);
        mpz_sqrt(a, d);
        mpz_setbit(b, 0);
        if (n < 300) mpz_powm(d, d, c, b);
        mpz_xor(d, d, c);
        mpz_mul(c, d, a);
        mpz_divexact(c, c, a);
        size_t size = 0;
        mpz_export(out, &size, 1, 1, 0, 0, d);
        show("mpz", out, size);
        printf("%lu %lu\n", mpz_popcount(c), mpz_tdiv_ui(d, 1000003));
    }
    return 0;
}
