# SPDX-License-Identifier: Apache-2.0
"""
probe - is there a GPU that works? Prints its name and the driver's CUDA version, or why not with exit code 77.

Asks the driver itself, by the calls that a program would make first; creates no context.
"""
import ctypes
import sys


def find_device():
    """(name, None), or (None, why not)."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, "no CUDA driver (libcuda.so.1 cannot be loaded)"
    if hasattr(driver, "softcuda_claim"):
        return None, "libcuda.so.1 is the software driver"
    code = driver.cuInit(0)
    if code:
        return None, f"the CUDA driver does not start (cuInit: error {code})"
    count, device, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return None, "the CUDA driver finds no device"
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDriverGetVersion(ctypes.byref(version))
    cuda = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    return f"{name.value.decode(errors='replace')}, driver for {cuda}", None


if __name__ == "__main__":
    found, why = find_device()
    print(found or why)
    sys.exit(0 if found else 77)
