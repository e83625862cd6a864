# Memory that grows while it is filled: text of unknown size, and cut cells.


cdef struct Growing:
    uint8_t *data
    int64_t size
    int64_t capacity


cdef int reserve(Growing *growing, int64_t more) except -1 nogil:
    """Reserve room for `more` bytes after the existing ones."""
    cdef int64_t capacity
    cdef uint8_t *data
    if growing.capacity - growing.size >= more:
        return 0
    capacity = 2 * growing.capacity + more
    data = <uint8_t *>realloc(growing.data, capacity)
    if data == NULL:
        return refuse_memory()
    growing.data = data
    growing.capacity = capacity
    return 0


cdef inline Cell *new_cell(Growing *growing) except NULL nogil:
    """Append a cell and return it; the caller fills it in."""
    reserve(growing, sizeof(Cell))
    growing.size += sizeof(Cell)
    return <Cell *>(growing.data + growing.size) - 1


cdef inline Run run_of(const Growing *growing, const uint8_t *body) noexcept nogil:
    """Return the cut cells as a run."""
    cdef Run run
    run.body = body
    run.cells = <Cell *>growing.data
    run.count = growing.size // <int64_t>sizeof(Cell)
    return run
