# Arrow's C data interface (arrow.apache.org/docs/format/CDataInterface.html): the array, the
# memory it owns, and its null bitmap.


cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    void **buffers
    ArrowArray **children
    ArrowArray *dictionary
    void (*release)(ArrowArray *) noexcept nogil
    void *private_data


cdef void release(ArrowArray *array) noexcept nogil:
    """Free what an array owns. A child whose `release` is NULL was moved elsewhere."""
    cdef ArrowArray *child
    for index in range(array.n_children):
        child = array.children[index]
        if child.release != NULL:
            child.release(child)
        free(child)
    for index in range(array.n_buffers):
        free(array.buffers[index])
    free(array.children)
    free(array.buffers)
    array.release = NULL


cdef int begin(
    ArrowArray *array, int64_t length, int64_t n_buffers, int64_t n_children
) except -1 nogil:
    """Make a zeroed array releasable, then allocate its lists of buffers and children."""
    array.length = length
    array.release = release
    array.buffers = <void **>calloc(n_buffers, sizeof(void *))
    array.children = <ArrowArray **>calloc(n_children or 1, sizeof(ArrowArray *))
    if array.buffers == NULL or array.children == NULL:
        return refuse_memory()
    array.n_buffers = n_buffers
    for index in range(n_children):
        array.children[index] = <ArrowArray *>calloc(1, sizeof(ArrowArray))
        if array.children[index] == NULL:
            return refuse_memory()
        array.n_children += 1
    return 0


cdef void *new_buffer(ArrowArray *array, int index, int64_t size) except NULL nogil:
    """Allocate `size` uninitialized bytes as the array's buffer `index`."""
    cdef void *memory = malloc(size or 1)
    if memory == NULL:
        refuse_memory()
    array.buffers[index] = memory
    return memory


cdef int set_validity(ArrowArray *array, const Run *run, int32_t shortest) except -1 nogil:
    """Set the null bitmap if there are nulls. A cell of fewer than `shortest` bytes is null."""
    cdef int64_t nulls = 0
    cdef int64_t row
    cdef uint8_t *bits
    for row in range(run.count):
        nulls += run.cells[row].length < shortest
    array.null_count = nulls
    if nulls == 0:
        return 0
    bits = <uint8_t *>new_buffer(array, 0, (run.count + 7) // 8)
    for row in range(0, run.count - 7, 8):
        bits[row >> 3] = validity(run.cells + row, 8, shortest)
    if run.count & 7:
        row = run.count & ~7
        bits[row >> 3] = validity(run.cells + row, run.count - row, shortest)
    return 0


cdef inline uint8_t validity(const Cell *cells, int64_t count, int32_t shortest) noexcept nogil:
    """Return the validity bits of up to eight cells, so that each byte is written once."""
    cdef uint8_t bits = 0
    cdef int64_t index
    for index in range(count):
        bits |= (cells[index].length >= shortest) << index
    return bits
