# packages: mypy
"""A large program that mypyc compiled."""
import pathlib
import mypy.api

pathlib.Path("m.py").write_text("from typing import Generic, TypeVar\nT = TypeVar('T')\nclass A(Generic[T]):\n    x: T\n    def f(self, y: int) -> T:\n        return self.x if y > 'a' else None\n\ndef g(a: A[str]) -> int:\n    return a.f(3)\n")
out, err, code = mypy.api.run(["--strict", "--no-incremental", "--cache-dir=/dev/null", "m.py"])
print(out, err, code)
