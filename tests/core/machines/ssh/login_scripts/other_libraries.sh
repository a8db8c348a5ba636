# expect: ready
export LD_PRELOAD=/nowhere/libfast.so LD_LIBRARY_PATH=/nowhere/lib:
