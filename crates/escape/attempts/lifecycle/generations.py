# Twenty generations, then one that stays.
for _ in range(20):
    if os.fork():
        if _ == 0: left("the twentieth generation")
        os._exit(0)
os.setsid()
leave_process()
