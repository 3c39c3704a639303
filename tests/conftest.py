"""What all tests share."""

import os

# Most tests start a JVM for seconds only: let it start fast rather than run fast.
os.environ.setdefault("FRESHET_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
