"""Threads, a queue, subprocesses, signals and a memory map."""
import mmap, os, queue, signal, subprocess, threading

todo, done = queue.Queue(), queue.Queue()


def worker():
    while (n := todo.get()) is not None:
        done.put(sum(i * i for i in range(n)))


threads = [threading.Thread(target=worker) for _ in range(4)]
[t.start() for t in threads]
[todo.put(n) for n in range(200)]
[todo.put(None) for _ in threads]
[t.join() for t in threads]
print(sum(done.get() for _ in range(200)))
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
hits = []
signal.signal(signal.SIGUSR1, lambda *_: hits.append(1))
for _ in range(5):
    os.kill(os.getpid(), signal.SIGUSR1)
print(len(hits))
pid = os.fork()
if pid == 0:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
with mmap.mmap(-1, 8192) as m:
    m[10:15] = b"hello"
    print(m.find(b"llo"))
