# packages: ruff uv black
"""Programs in Rust, and one that mypyc compiled, executed by Python."""
import pathlib
import subprocess
import sys
import sysconfig

bin = pathlib.Path(sysconfig.get_path("scripts"))
pathlib.Path("a.py").write_text("import os, sys\ndef  f( x,y = 3 ):\n  return [ a*2 for a in range( x ) if a!=y ]\nclass A( object ) :\n    def g(self): return {'a':1, 'b' :f(3)}\n" * 40)
def run(*words):
    result = subprocess.run(words, capture_output=True, text=True)
    print(words[1:], result.returncode, len(result.stdout), result.stdout[-300:], result.stderr[-200:])
run(str(bin / "ruff"), "check", "--no-cache", "--select", "ALL", "--output-format", "concise", "a.py")
run(str(bin / "ruff"), "format", "--no-cache", "--diff", "a.py")
run(str(bin / "uv"), "--version")
pathlib.Path("r.in").write_text("")
run(str(bin / "uv"), "pip", "compile", "--offline", "--no-cache", "--no-header", "r.in")
run(sys.executable, "-m", "black", "-q", "--diff", "a.py")
