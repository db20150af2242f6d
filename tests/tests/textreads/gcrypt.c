// libgcrypt's ciphers, digests and public keys, without the features of the processor that the arguments name. Its
// assembly has tables in the text.
#include <gcrypt.h>
#include <stdio.h>
#include <string.h>
static unsigned char data[20011], out[20011];
static void show(const char *name, const void *p, size_t n)
{
    unsigned char md[20];
    gcry_md_hash_buffer(GCRY_MD_SHA1, md, p, n);
    printf("%s ", name);
    for (int i = 0; i < 20; i++) printf("%02x", md[i]);
    printf("\n");
}
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (gcry_control(GCRYCTL_DISABLE_HWF, argv[i], NULL)) printf("no feature %s\n", argv[i]);
    if (!gcry_check_version(NULL)) return 1;
    gcry_control(GCRYCTL_DISABLE_SECMEM, 0);
    gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
    for (size_t i = 0; i < sizeof data; i++) data[i] = i * i >> 2;
    static const int modes[] = { GCRY_CIPHER_MODE_ECB, GCRY_CIPHER_MODE_CBC, GCRY_CIPHER_MODE_CTR, GCRY_CIPHER_MODE_CFB, GCRY_CIPHER_MODE_OCB, GCRY_CIPHER_MODE_GCM };
    for (int algo = 1; algo < 330; algo++) {
        if (gcry_cipher_test_algo(algo)) continue;
        for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
            gcry_cipher_hd_t h;
            if (gcry_cipher_open(&h, algo, modes[m], 0)) continue;
            size_t block = gcry_cipher_get_algo_blklen(algo), n = sizeof data / 16 * 16;
            if (!gcry_cipher_setkey(h, data + 99, gcry_cipher_get_algo_keylen(algo))) {
                for (int back = 0; back < 2; back++) {
                    gcry_cipher_setiv(h, data + 5, modes[m] >= GCRY_CIPHER_MODE_GCM ? 12 : block);
                    gcry_cipher_setctr(h, data + 5, block);
                    gcry_cipher_final(h);
                    gcry_error_t e = back ? gcry_cipher_decrypt(h, out, n, data, n) : gcry_cipher_encrypt(h, out, n, data, n);
                    if (!e) show(gcry_cipher_algo_name(algo), out, n);
                    gcry_cipher_reset(h);
                }
            }
            gcry_cipher_close(h);
        }
    }
    for (int algo = 1; algo < 330; algo++) {
        if (gcry_md_test_algo(algo) || !gcry_md_get_algo_dlen(algo)) continue;
        gcry_md_hash_buffer(algo, out, data, sizeof data);
        show(gcry_md_algo_name(algo), out, gcry_md_get_algo_dlen(algo));
    }
    gcry_mpi_t a, b, c, p;
    gcry_mpi_scan(&a, GCRYMPI_FMT_USG, data + 7, 128, NULL);
    gcry_mpi_scan(&b, GCRYMPI_FMT_USG, data + 301, 128, NULL);
    gcry_mpi_scan(&p, GCRYMPI_FMT_USG, data + 777, 129, NULL);
    gcry_mpi_set_bit(p, 0);
    c = gcry_mpi_new(0);
    gcry_mpi_powm(c, a, b, p);
    gcry_mpi_div(a, b, c, p, 0);
    unsigned char *text = NULL;
    gcry_mpi_aprint(GCRYMPI_FMT_HEX, &text, NULL, c);
    printf("powm %s\n", text);
    printf("tests %d\n", !!gcry_control(GCRYCTL_SELFTEST));
    return 0;
}
