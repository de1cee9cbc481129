"""A program for a GPU, by the driver's own library alone: it computes something there, and tells what it finds."""

import ctypes
import sys

COUNT = 1024
# Each thread takes a number, and leaves three times it and one.
PROGRAM = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry work(.param .u64 at)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [at];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r2, [%rd4];
    mad.lo.u32 %r3, %r2, 3, 1;
    st.global.u32 [%rd4], %r3;
    ret;
}
"""

cuda = ctypes.CDLL("libcuda.so.1")


def do(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        sys.exit(f"{name}: error {code}")


do("cuInit", 0)
devices = ctypes.c_int()
do("cuDeviceGetCount", ctypes.byref(devices))
device, context, module, work = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
do("cuDeviceGet", ctypes.byref(device), 0)
name = ctypes.create_string_buffer(96)
do("cuDeviceGetName", name, len(name), device)
do("cuCtxCreate_v2", ctypes.byref(context), 0, device)
do("cuModuleLoadData", ctypes.byref(module), PROGRAM)
do("cuModuleGetFunction", ctypes.byref(work), module, b"work")
numbers = (ctypes.c_uint32 * COUNT)(*range(COUNT))
at = ctypes.c_uint64()
do("cuMemAlloc_v2", ctypes.byref(at), ctypes.sizeof(numbers))
do("cuMemcpyHtoD_v2", at, numbers, ctypes.sizeof(numbers))
arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(at), ctypes.c_void_p))
do("cuLaunchKernel", work, 1, 1, 1, COUNT, 1, 1, 0, None, arguments, None)
do("cuCtxSynchronize")
do("cuMemcpyDtoH_v2", numbers, at, ctypes.sizeof(numbers))
wrong = sum(numbers[i] != 3 * i + 1 for i in range(COUNT))
print(f"devices={devices.value} wrong={wrong} name={name.value.decode()}")
