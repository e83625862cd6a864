# The form of a CQL type that the loops use, and its construction from the type.

cdef struct Shape

ctypedef int (*Build)(const Shape *shape, const Run *run, ArrowArray *out) except -1 nogil

cdef struct Shape:
    Build build  # a run of cells to an array
    int64_t width  # bytes of a value, or of a vector's element; 0 if they vary
    int64_t dimension  # of a vector
    int64_t part_count
    Shape *parts


cdef int set_shape(Shape *shape, cql_type) except -1:
    if isinstance(cql_type, Native):
        return set_native(shape, cql_type.name)
    if isinstance(cql_type, MapType):
        shape.build = build_map
        return set_parts(shape, [cql_type.key, cql_type.value])
    if isinstance(cql_type, (ListType, SetType)):
        shape.build = build_list
        return set_parts(shape, [cql_type.element])
    if isinstance(cql_type, VectorType):
        shape.build = build_vector
        shape.width = min(fixed_width(cql_type.element) or 0, LARGEST)
        shape.dimension = min(cql_type.dimension, LARGEST)
        return set_parts(shape, [cql_type.element])
    shape.build = build_struct
    return set_parts(shape, [part for _, part in fields_of(cql_type)])


cdef int set_parts(Shape *shape, list types) except -1:
    shape.parts = <Shape *>calloc(len(types) or 1, sizeof(Shape))
    if shape.parts == NULL:
        raise MemoryError
    shape.part_count = len(types)
    for index, cql_type in enumerate(types):
        set_shape(&shape.parts[index], cql_type)
    return 0


cdef void free_parts(Shape *shape) noexcept:
    for index in range(shape.part_count):
        free_parts(&shape.parts[index])
    free(shape.parts)


cdef int set_native(Shape *shape, str name) except -1:
    shape.width = WIDTHS.get(name, 0)
    if name == "date":
        shape.build = build_date
    elif shape.width:
        shape.build = build_fixed
    elif name == "boolean":
        shape.build = build_boolean
    elif name == "duration":
        shape.build = build_duration
    elif name == "blob":
        shape.build = build_blob
    elif name == "ascii":
        shape.build = build_ascii
    elif name == "text":
        shape.build = build_text
    elif name == "uuid" or name == "timeuuid":
        shape.build = build_uuid
    elif name == "inet":
        shape.build = build_inet
    elif name == "varint":
        shape.build = build_varint
    elif name == "decimal":
        shape.build = build_decimal
    else:
        raise KeyError(name)
    return 0


cdef dict WIDTHS = {
    "bigint": 8, "counter": 8, "date": 4, "double": 8, "float": 4, "int": 4, "smallint": 2,
    "time": 8, "timestamp": 8, "tinyint": 1,
}
cdef object LARGEST = 2**62
"""Larger than any body, so no larger width or dimension of a vector can occur."""
