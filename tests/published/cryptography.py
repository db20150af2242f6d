# packages: cryptography bcrypt
"""Rust and a static OpenSSL: ciphers, signatures, certificates, errors."""
import datetime
import bcrypt
from cryptography import exceptions, x509
from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, x25519
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

data = bytes(range(256)) * 40
for kind in (hashes.SHA1, hashes.SHA256, hashes.SHA512, hashes.SHA3_256, hashes.BLAKE2b):
    digest = hashes.Hash(kind(64) if kind is hashes.BLAKE2b else kind())
    digest.update(data)
    print(digest.finalize().hex())
for mode in (modes.CBC(b"i" * 16), modes.CTR(b"i" * 16), modes.GCM(b"i" * 12)):
    print(Cipher(algorithms.AES(b"k" * 32), mode).encryptor().update(data)[-20:].hex())
print(AESGCM(b"k" * 16).encrypt(b"n" * 12, data, b"x")[-16:].hex(), ChaCha20Poly1305(b"k" * 32).encrypt(b"n" * 12, data, b"x")[-16:].hex(), AESSIV(b"k" * 64).encrypt(data, [b"x"])[:16].hex())
print(PBKDF2HMAC(hashes.SHA256(), 32, b"salt", 2000).derive(b"p").hex(), Scrypt(b"salt", 32, 1024, 8, 1).derive(b"p").hex())
print(ed25519.Ed25519PrivateKey.from_private_bytes(b"s" * 32).sign(data).hex())
print(x25519.X25519PrivateKey.from_private_bytes(b"a" * 32).exchange(x25519.X25519PrivateKey.from_private_bytes(b"b" * 32).public_key()).hex())
key = rsa.generate_private_key(65537, 2048)
signature = key.sign(data, padding.PKCS1v15(), hashes.SHA256())
key.public_key().verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
try:
    key.public_key().verify(signature, data + b"x", padding.PKCS1v15(), hashes.SHA256())
except exceptions.InvalidSignature as error:
    print(repr(error))
curve = ec.derive_private_key(12345678901234567890, ec.SECP256R1())
curve.public_key().verify(curve.sign(data, ec.ECDSA(hashes.SHA256())), data, ec.ECDSA(hashes.SHA256()))
name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "n")])
day = datetime.datetime(2026, 1, 1)
certificate = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(curve.public_key()).serial_number(7).not_valid_before(day).not_valid_after(day + datetime.timedelta(9)).sign(curve, hashes.SHA256())
print(x509.load_pem_x509_certificate(certificate.public_bytes(serialization.Encoding.PEM)).subject)
token = Fernet(Fernet.generate_key()).encrypt(b"x")
try:
    Fernet(Fernet.generate_key()).decrypt(token)
except InvalidToken as error:
    print(repr(error))
print(bcrypt.hashpw(b"p", b"$2b$06$abcdefghijklmnopqrstuu"), bcrypt.kdf(b"p", b"salt", 32, 50).hex())
