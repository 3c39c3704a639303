"""What all tests share."""

import logging
import os

# When Python ends, py4j tells of closed connections on a stream that pytest has closed before.
logging.getLogger("py4j").setLevel(logging.WARNING)

# Most tests start a JVM for seconds only: let it start fast rather than run fast.
os.environ.setdefault("FRESHET_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
