import threading
if WASI: na("the guest has no threads")
stop = threading.Event(); threads = []
threading.stack_size(64 * 1024)
for count in range(100):
    thread = threading.Thread(target=stop.wait, daemon=True)
    try: thread.start()
    except RuntimeError as error: held("%d threads, then: %s" % (count, error))
    threads.append(thread)
escaped("100 threads where 32 are allowed")
