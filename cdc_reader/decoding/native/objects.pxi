# Python objects, many at a time; see `cdc_reader.decoding.python`.

from cpython.dict cimport PyDict_SetItem
from cpython.type cimport PyType_GenericAlloc

cdef extern from *:
    """
    #define CDC_SET(slot, instance, value) Py_TYPE(slot)->tp_descr_set(slot, instance, value)
    """
    int set_slot "CDC_SET"(object slot, object instance, object value) except -1


def instances(type cls, Py_ssize_t count, *columns):
    """Create instances of a slotted class from the values of its attributes."""
    cdef list made
    if cls.__new__ is not object.__new__:
        raise TypeError(f"expected a class that makes its instances as object does, found {cls}")
    made = [PyType_GenericAlloc(cls, 0) for _ in range(count)]
    for attribute, column in zip(attrs.fields(cls), columns, strict=True):
        set_all(getattr(cls, attribute.name), made, column)
    return made


cdef int set_all(slot, list made, column) except -1:
    if not hasattr(slot, "__set__"):
        raise TypeError(f"expected an attribute with a slot, found {slot}")
    for instance, value in zip(made, column):
        set_slot(slot, instance, value)
    return 0


def put_all(mappings, str name, values):
    """Put a value under `name` into each mapping, none of which has the name yet."""
    for mapping, value in zip(mappings, values):
        PyDict_SetItem(mapping, name, value)
