params = ctypes.create_string_buffer(120)
try:
    with open("/proc/sys/kernel/io_uring_disabled") as file: off = file.read().strip() != "0"
except OSError:
    off = False
if CONTROL and off: na("this host forbids io_uring to everybody")
call(425, 1, ctypes.cast(params, ctypes.c_char_p))
