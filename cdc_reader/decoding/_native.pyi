import pyarrow as pa

from cdc_reader.decoding.objects import Entries as Entries
from cdc_reader.decoding.objects import Entry as Entry
from cdc_reader.decoding.objects import Field as Field
from cdc_reader.decoding.objects import GivenField as GivenField
from cdc_reader.decoding.objects import Mappings as Mappings
from cdc_reader.decoding.objects import Objects as Objects
from cdc_reader.decoding.objects import Tuples as Tuples
from cdc_reader.decoding.objects import Wrapper as Wrapper
from cdc_reader.decoding.objects import blobs as blobs
from cdc_reader.decoding.objects import entry as entry
from cdc_reader.decoding.objects import uuids as uuids
from cdc_reader.decoding.objects import values as values
from cdc_reader.decoding.page import Page

def decode(page: Page) -> pa.RecordBatch: ...
def micros_of(times: pa.Array) -> pa.Array: ...
