# Errors for malformed bytes, with the messages of the Python kernel. Each function acquires the
# interpreter lock and raises an error. Callers do not hold the lock, and return the function's
# result.


cdef int refuse_memory() except -1 with gil:
    raise MemoryError


cdef int refuse_width(int64_t expected, int64_t found) except -1 with gil:
    raise DecodeError(f"expected {expected} bytes, found {found}")


cdef int refuse_boolean() except -1 with gil:
    raise DecodeError("expected 1 byte for a boolean, found more")


cdef int refuse_duration() except -1 with gil:
    raise DecodeError("a part of a duration is out of range")


cdef int refuse_utf8() except -1 with gil:
    raise DecodeError("expected UTF-8 text, found other bytes")


cdef int refuse_ascii() except -1 with gil:
    raise DecodeError("expected ASCII text, found other bytes")


cdef int refuse_inet(int64_t found) except -1 with gil:
    raise DecodeError(f"expected 4 or 16 bytes, found {found}")


cdef int refuse_decimal(int64_t found) except -1 with gil:
    raise DecodeError(f"expected at least 5 bytes, found {found}")


cdef int refuse_take(uint64_t size, int64_t offset, int64_t left) except -1 with gil:
    raise DecodeError(f"expected {size} bytes at offset {offset}, found {left}")


cdef int refuse_rest(const char *what, int64_t left) except -1 with gil:
    raise DecodeError(f"{what.decode()} has {left} bytes too many")


cdef int refuse_fields(int64_t count, int64_t left) except -1 with gil:
    raise DecodeError(f"a value of {count} fields has {left} bytes too many")


cdef int refuse_count(int64_t count) except -1 with gil:
    raise DecodeError(f"expected a number of elements, found {count}")


cdef int refuse_parts(int64_t size, int64_t parts) except -1 with gil:
    raise DecodeError(f"a collection of {size} bytes claims to have {parts} parts")


cdef int refuse_key() except -1 with gil:
    raise DecodeError("a map has a null or empty key")


cdef int refuse_row_count() except -1 with gil:
    raise DecodeError("the result ends before its row count")


cdef int refuse_rows(int64_t left, int64_t rows) except -1 with gil:
    raise DecodeError(f"the result has {left} bytes, too few for {rows} rows")


cdef int refuse_end(int64_t end) except -1 with gil:
    raise DecodeError(f"the result ends at {end}, within the length of a value")


cdef int refuse_value(int64_t length, int64_t offset, int64_t end) except -1 with gil:
    raise DecodeError(f"a value of {length} bytes at offset {offset} ends beyond {end}")


cdef int refuse_after(int64_t left) except -1 with gil:
    raise DecodeError(f"the result has {left} bytes after its last row")


cdef int refuse_uuid() except -1 with gil:
    raise ValueError("expected a UUID of 36 characters in lower case")
