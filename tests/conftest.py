"""What all tests share."""

import logging
import os
import tempfile

# When Python ends, py4j tells of closed connections on a stream that pytest has closed before.
logging.getLogger("py4j").setLevel(logging.WARNING)

# A driver that is killed leaves its temporary files behind.
JAVA_FILES = tempfile.TemporaryDirectory(prefix="freshet-java-", ignore_cleanup_errors=True)
# Most tests start a JVM for seconds only: let it start fast rather than run fast.
os.environ.setdefault(
    "FRESHET_JAVA_OPTIONS", f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={JAVA_FILES.name}"
)
