# Unbounded numbers as decimal text. Numbers of up to 64 bytes are written here, and longer ones by
# Python, whose arithmetic is then faster than long division.

cdef enum:
    LONGEST = 64  # bytes of a number written here
    LIMBS = LONGEST // 4
    DIGITS = 160  # 64 bytes have at most 155 digits
    BILLION = 1_000_000_000


cdef int build_varint(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    return build_strings(run, out, write_varint, 12)


cdef int build_decimal(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil:
    return build_strings(run, out, write_decimal, 12)


cdef int write_varint(const uint8_t *data, int32_t length, Growing *text) except -1 nogil:
    cdef uint8_t[DIGITS] digits
    cdef int count
    if length > LONGEST:
        return write_long(data, length, text, False)
    reserve(text, DIGITS + 1)
    count = digits_of(put_sign(text, data), data, length, digits)
    put_digits(text, digits, count)
    return 0


cdef int write_decimal(const uint8_t *data, int32_t length, Growing *text) except -1 nogil:
    """Write a decimal in the form of the General Decimal Arithmetic specification.

    The text has an exponent if it would otherwise need zeros at its end, or more than five zeros
    after its decimal point.
    """
    cdef uint8_t[DIGITS] digits
    cdef int32_t scale = 0
    cdef int count
    cdef int64_t left
    if length < 5:
        return refuse_decimal(length)
    if length > LONGEST + 4:
        return write_long(data, length, text, True)
    reserve(text, DIGITS + 20)
    load(data, &scale)
    count = digits_of(put_sign(text, data + 4), data + 4, length - 4, digits)
    left = count - <int64_t>scale
    if scale < 0 or left <= -6:
        put_scientific(text, digits, count, left - 1)
    elif left <= 0:
        put_fraction(text, digits, count, -left)
    else:
        put_digits(text, digits, left)
        if left < count:
            put(text, c".")
            put_digits(text, digits + left, count - left)
    return 0


cdef inline void put_scientific(
    Growing *text, const uint8_t *digits, int count, int64_t exponent
) noexcept nogil:
    put(text, digits[0])
    if count > 1:
        put(text, c".")
        put_digits(text, digits + 1, count - 1)
    put(text, c"E")
    put(text, c"-" if exponent < 0 else c"+")
    put_number(text, <uint64_t>(-exponent if exponent < 0 else exponent))


cdef inline void put_fraction(
    Growing *text, const uint8_t *digits, int count, int64_t zeros
) noexcept nogil:
    put(text, c"0")
    put(text, c".")
    for _ in range(zeros):
        put(text, c"0")
    put_digits(text, digits, count)


cdef int write_long(
    const uint8_t *data, int32_t length, Growing *text, bint is_decimal
) except -1 with gil:
    """Write the number with Python, whose integers have no size limit."""
    cdef bytes cell = data[:length]
    cdef bytes written = (decimal_text(cell) if is_decimal else varint_text(cell)).encode()
    reserve(text, len(written))
    put_digits(text, written, len(written))
    return 0


cdef inline bint put_sign(Growing *text, const uint8_t *data) noexcept nogil:
    """Write a minus sign if the number is negative; return True in this case."""
    if data[0] < 0x80:
        return False
    put(text, c"-")
    return True


cdef int digits_of(
    bint negative, const uint8_t *data, int32_t length, uint8_t *digits
) noexcept nogil:
    """Write the digits of a number's magnitude; return the number of digits.

    Divides by a billion until the rest fits into 64 bits.
    """
    cdef uint32_t[LIMBS] limbs
    cdef int size = magnitude(negative, data, length, limbs)
    cdef int used = 0
    cdef uint64_t rest
    while size > 2:
        used = put_reversed(digits, used, divide(limbs, size), 9)
        while size > 2 and limbs[size - 1] == 0:
            size -= 1
    rest = limbs[0]
    if size == 2:
        rest |= <uint64_t>limbs[1] << 32
    used = put_reversed(digits, used, rest, 1)
    reverse(digits, used)
    return used


cdef int magnitude(
    bint negative, const uint8_t *data, int32_t length, uint32_t *limbs
) noexcept nogil:
    """Store a two's complement number's magnitude as 32-bit limbs, the lowest first.

    Returns the number of limbs up to the last one that is not 0.
    """
    cdef int size = (length + 3) // 4
    cdef uint64_t carry = negative
    cdef uint8_t flip = 0xFF if negative else 0
    cdef int index
    memset(limbs, 0, size * 4)
    for index in range(length):
        limbs[index >> 2] |= <uint32_t>(data[length - 1 - index] ^ flip) << 8 * (index & 3)
    for index in range(size):
        carry += limbs[index]
        limbs[index] = <uint32_t>carry
        carry >>= 32
    while size > 1 and limbs[size - 1] == 0:
        size -= 1
    return size


cdef inline uint64_t divide(uint32_t *limbs, int size) noexcept nogil:
    """Divide the limbs by a billion in place; return the remainder."""
    cdef uint64_t part = 0
    cdef int index
    for index in range(size - 1, -1, -1):
        part = part << 32 | limbs[index]
        limbs[index] = <uint32_t>(part // BILLION)
        part %= BILLION
    return part


cdef inline int put_reversed(
    uint8_t *digits, int used, uint64_t number, int at_least
) noexcept nogil:
    """Write digits from the last to the first, zero-padded to `at_least`; return the total."""
    while number or at_least > 0:
        digits[used] = c"0" + <uint8_t>(number % 10)
        number //= 10
        used += 1
        at_least -= 1
    return used


cdef inline void reverse(uint8_t *digits, int count) noexcept nogil:
    cdef int index
    cdef uint8_t digit
    for index in range(count // 2):
        digit = digits[index]
        digits[index] = digits[count - 1 - index]
        digits[count - 1 - index] = digit


cdef inline void put_number(Growing *text, uint64_t number) noexcept nogil:
    cdef uint8_t *to = text.data + text.size
    cdef int count = put_reversed(to, 0, number, 1)
    reverse(to, count)
    text.size += count


cdef inline void put_digits(Growing *text, const uint8_t *digits, int64_t count) noexcept nogil:
    memcpy(text.data + text.size, digits, count)
    text.size += count
