# packages: pillow opencv-python-headless numpy
"""Codecs with vector instructions, a vendored FFmpeg and OpenBLAS, threads."""
import hashlib
import io
import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, UnidentifiedImageError

def digest(data):
    return hashlib.sha1(bytes(data)).hexdigest()

image = Image.effect_mandelbrot((160, 120), (-2, -1, 1, 1), 60).convert("RGB")
ImageDraw.Draw(image).ellipse((20, 20, 90, 90), fill=(200, 30, 7))
for kind in ("PNG", "JPEG", "WEBP", "TIFF", "GIF", "JPEG2000", "BMP"):
    file = io.BytesIO()
    image.save(file, kind)
    file.seek(0)
    print(kind, digest(file.getvalue()), digest(Image.open(file).convert("RGB").tobytes()))
print(digest(image.resize((77, 33), Image.LANCZOS).rotate(13).filter(ImageFilter.GaussianBlur(2)).quantize(16).tobytes()))
try:
    Image.open(io.BytesIO(b"no image"))
except UnidentifiedImageError as error:
    print(type(error).__name__)
pixels = np.asarray(image)
grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
print(digest(cv2.GaussianBlur(pixels, (5, 5), 1.5)), digest(cv2.Canny(grey, 50, 150)), digest(cv2.resize(pixels, (55, 77), interpolation=cv2.INTER_AREA)))
points, descriptors = cv2.ORB_create(100).detectAndCompute(grey, None)
print(len(points), digest(descriptors), len(cv2.findContours(grey, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0]))
print(digest(cv2.imencode(".jpg", pixels)[1]), digest(cv2.dft(np.float32(grey)).tobytes()), cv2.solve(np.eye(3), np.ones((3, 1)))[0])
try:
    cv2.cvtColor(grey, cv2.COLOR_RGB2GRAY)
except cv2.error as error:
    print(error.code)
