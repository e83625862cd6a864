"""A small file in any storage that Spark can write, such as a bucket."""

from __future__ import annotations

from typing import Any

from attrs import frozen
from pyspark.sql import SparkSession


@frozen
class StoredFile:
    """The file at `path`. All methods raise Py4JJavaError if the storage refuses them."""

    path: str
    _spark: SparkSession

    def text(self) -> str | None:
        """Return the contents of the file, or None if it does not exist."""
        path, files = self._place()
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, text: str) -> None:
        """Replace the contents of the file, and create the file if it does not exist."""
        path, files = self._place()
        stream = files.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def delete(self) -> None:
        """Delete the file, if it exists."""
        path, files = self._place()
        files.delete(path, False)

    def _place(self) -> tuple[Any, Any]:
        """Return the path, and the file system that has it, as Java objects."""
        path = self._jvm.org.apache.hadoop.fs.Path(self.path)
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - PySpark has no other way
        return path, path.getFileSystem(session.sessionState().newHadoopConf())

    @property
    def _jvm(self) -> Any:
        return self._spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way
