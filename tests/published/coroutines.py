# packages: greenlet gevent uvloop
"""Switches of the stack in C and assembly, libev, libuv; timers, signals and exceptions across them."""
import asyncio
import signal
import threading
import gevent
import gevent.queue
import greenlet
import uvloop

def producer(number):
    for n in range(400):
        consumer.switch(number * 1000 + n)
    raise ValueError(number)

def deep(n, value):
    return greenlet.getcurrent().parent.switch(value) if n == 0 else deep(n - 1, value) + 1

consumer = greenlet.getcurrent()
total = 0
for number in range(20):
    coroutine = greenlet.greenlet(producer)
    try:
        value = coroutine.switch(number)
        while True:
            total += value
            value = coroutine.switch()
    except ValueError as error:
        total += error.args[0]
print(total)
many = [greenlet.greenlet(deep) for _ in range(60)]
print([m.switch(n + 1, n) for n, m in enumerate(many)][:5], [m.switch(n) for n, m in enumerate(many)][-5:])

queue = gevent.queue.Queue(maxsize=3)
def put():
    for n in range(300):
        queue.put(n)
    queue.put(StopIteration)
def take():
    return sum(queue)
jobs = [gevent.spawn(take), gevent.spawn(put)]
gevent.joinall(jobs)
print(jobs[0].value, gevent.with_timeout(0.01, gevent.sleep, 9, timeout_value="late"))

async def echo(reader, writer):
    while data := await reader.readline():
        writer.write(data.upper())
    writer.close()

async def main():
    loop = asyncio.get_running_loop()
    seen = []
    loop.add_signal_handler(signal.SIGUSR1, seen.append, 1)
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async def client(n):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"line %d\n" % n)
        line = await reader.readline()
        writer.close()
        return line
    lines = await asyncio.gather(*(client(n) for n in range(30)))
    signal.raise_signal(signal.SIGUSR1)
    await asyncio.sleep(0.02)
    process = await asyncio.create_subprocess_exec("/bin/echo", "child", stdout=-1)
    print(lines[:2], len(lines), seen, (await process.communicate())[0], await loop.run_in_executor(None, threading.active_count) > 1)
    server.close()
uvloop.run(main())
