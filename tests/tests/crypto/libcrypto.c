// Digests, ciphers and public keys through libcrypto, whose hand-written assembly has its
// tables between the code and chooses by the processor.
#include <stdio.h>
#include <string.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <openssl/ec.h>
#include <openssl/bn.h>
#include <openssl/sha.h>
static void show(const char *name, const unsigned char *p, size_t n)
{
    printf("%s ", name);
    for (size_t i = 0; i < n && i < 20; i++) printf("%02x", p[i]);
    printf("\n");
}
int main(void)
{
    static unsigned char data[100003], out[110000];
    for (size_t i = 0; i < sizeof data; i++) data[i] = i * i >> 3;
    const char *digests[] = { "MD5", "SHA1", "SHA256", "SHA512", "SHA3-256", "BLAKE2b512", "SM3" };
    for (size_t i = 0; i < sizeof digests / sizeof *digests; i++) {
        unsigned n = 0;
        unsigned char md[64];
        const EVP_MD *d = EVP_get_digestbyname(digests[i]);
        if (d && EVP_Digest(data, sizeof data, md, &n, d, NULL)) show(digests[i], md, n);
    }
    const char *ciphers[] = { "AES-128-CBC", "AES-256-CTR", "AES-256-GCM", "ChaCha20-Poly1305", "CAMELLIA-128-CBC", "ARIA-128-CTR", "SM4-CTR" };
    for (size_t i = 0; i < sizeof ciphers / sizeof *ciphers; i++) {
        unsigned char key[32] = "0123456789abcdef0123456789abcde", iv[16] = "fedcba98765432";
        const EVP_CIPHER *c = EVP_get_cipherbyname(ciphers[i]);
        EVP_CIPHER_CTX *x = EVP_CIPHER_CTX_new();
        int n = 0, m = 0;
        if (c && EVP_EncryptInit_ex(x, c, NULL, key, iv) && EVP_EncryptUpdate(x, out, &n, data, sizeof data) && EVP_EncryptFinal_ex(x, out + n, &m)) {
            unsigned char md[20];
            show(ciphers[i], SHA1(out, n + m, md), 20);
        }
        EVP_CIPHER_CTX_free(x);
    }
    BN_CTX *ctx = BN_CTX_new();
    BIGNUM *p = BN_new(), *a = BN_new(), *r = BN_new();
    for (int bits = 512; bits <= 2048; bits *= 2) {
        BN_bin2bn(data + 7, bits / 8, p);
        BN_set_bit(p, 0);
        BN_set_bit(p, bits - 1);
        BN_bin2bn(data + 1007, bits / 8 - 1, a);
        BN_mod_exp(r, a, a, p, ctx);
        char *hex = BN_bn2hex(r);
        printf("modexp %d %.40s\n", bits, hex);
        OPENSSL_free(hex);
    }
    int curves[] = { NID_X9_62_prime256v1, NID_secp384r1, NID_secp521r1, NID_secp256k1 };
    for (int i = 0; i < 4; i++) {
        EC_GROUP *g = EC_GROUP_new_by_curve_name(curves[i]);
        EC_POINT *q = EC_POINT_new(g);
        BN_bin2bn(data + 99, 30, a);
        EC_POINT_mul(g, q, a, NULL, NULL, ctx);
        char *hex = EC_POINT_point2hex(g, q, POINT_CONVERSION_COMPRESSED, ctx);
        printf("curve %s\n", hex);
        OPENSSL_free(hex);
    }
    unsigned char secret[32], shared[32];
    size_t n = sizeof shared;
    memcpy(secret, data + 300, 32);
    EVP_PKEY *k = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, secret, 32);
    if (k && EVP_PKEY_get_raw_public_key(k, shared, &n)) show("x25519", shared, n);
    return 0;
}
