"""The Spark session of every job: Delta, the jars, and the settings that small batches need.

`python -m freshet.streaming.session` fetches the jars once; sessions then start from these files
without asking the network. Their versions follow from the installed Python packages, so
requirements.txt stays the one place for versions.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import distribution, version
from pathlib import Path
from typing import TYPE_CHECKING

from freshet.environment import one_of
from freshet.errors import FreshetError
from freshet.home import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALA = "2.13"
LOOPBACK = "127.0.0.1"
LEAST_DRIVER_MB = 512
"""Spark does not start with less."""
LOG_LEVELS = ("ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")


def tools_folder() -> Path:
    """Where set-up keeps what it fetched: FRESHET_TOOLS, by default `.freshet` in the project."""
    return Path(os.environ.get("FRESHET_TOOLS") or PROJECT / ".freshet").absolute()


def packages() -> str:
    """The Maven coordinates of the jars that match the installed pyspark and delta-spark."""
    spark = ".".join(version("pyspark").split(".")[:2])
    return f"io.delta:delta-spark_{spark}_{SCALA}:{version('delta-spark')}"


def jars() -> list[Path]:
    """The fetched jars; refused when set-up has not fetched the versions in use."""
    folder = tools_folder() / "ivy" / "jars"
    group, artifact, release = packages().split(":")
    if not (folder / f"{group}_{artifact}-{release}.jar").exists():
        raise FreshetError(f"Spark's package {packages()} is not in {folder}. Run `make setup` to fetch it.")
    # Ivy brings all that Delta needs; what Spark ships itself must not come twice, in two versions.
    shipped = {_artifact(jar.name) for jar in _spark_jars().glob("*.jar")}
    return sorted(jar for jar in folder.glob("*.jar") if _artifact(jar.name.split("_", 1)[1]) not in shipped)


def _spark_jars() -> Path:
    # Not from where pyspark is imported: under spark-submit that is an archive without the jars.
    return Path(str(distribution("pyspark").locate_file("pyspark/jars")))


def _artifact(file: str) -> str:
    """The name of a jar without its version."""
    return re.sub(r"-\d[\w.-]*\.jar$", "", file)


def spark_conf() -> dict[str, str]:
    """The settings of every session, as spark-submit's `--conf` takes them."""
    cores = str(os.cpu_count() or 2)
    return {
        "spark.jars": ",".join(str(jar) for jar in jars()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # By default Delta and Spark cut every small job into 50 and 200 tasks.
        "spark.databricks.delta.snapshotPartitions": cores,
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.session.timeZone": "UTC",
        # Spark's own type counts nanoseconds for readers in Arrow: no year before 1677 or after 2262.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # What two expressions share would be computed outside the try that parks a failing row.
        "spark.sql.subexpressionElimination.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **driver_address(),
        "spark.driver.memory": driver_memory(),
        "spark.driver.extraJavaOptions": java_options(),
        "spark.sql.warehouse.dir": str(tools_folder() / "spark-warehouse"),
        "spark.python.worker.reuse": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.executorEnv.PYTHONHASHSEED": "0",
    }


def class_archive() -> Path:
    """Java's classes as they are once loaded, which set-up has written (see `freshet.classes`)."""
    return tools_folder() / "classes.jsa"


def java_options() -> str:
    """The options of the driver's JVM: how it logs, the user's, the archive of classes if there is one."""
    logging = Path(__file__).with_name("log4j2.properties").as_uri()
    options = f'"-Dlog4j2.configurationFile={logging}" {os.environ.get("FRESHET_JAVA_OPTIONS", "")}'.strip()
    archive = class_archive()
    if not archive.exists():
        return options
    # A JVM that it does not fit goes on without it, and need not say so on standard output.
    return f'"-XX:SharedArchiveFile={archive}" -Xlog:cds=off -Xlog:cds+dynamic=off {options}'.strip()


def driver_memory() -> str:
    """The memory of the driver's JVM: FRESHET_DRIVER_MEMORY, by default 2g."""
    written = os.environ.get("FRESHET_DRIVER_MEMORY") or "2g"
    size = re.fullmatch("([0-9]{1,9})([mgt])", written.lower())
    if size is None or int(size[1]) << 10 * "mgt".index(size[2]) < LEAST_DRIVER_MB:
        raise FreshetError(
            f"FRESHET_DRIVER_MEMORY is {written!r}: write a whole number and m, g or t, at least "
            f"{LEAST_DRIVER_MB}m, such as 4g, or unset it for 2g."
        )
    return written.lower()


def log_level() -> str:
    """What Spark itself logs: FRESHET_SPARK_LOG, by default WARN."""
    return one_of("FRESHET_SPARK_LOG", "WARN", LOG_LEVELS)


def driver_address() -> dict[str, str]:
    """Where executors call the driver: this machine only, or FRESHET_DRIVER_HOST when they run elsewhere."""
    host = os.environ.get("FRESHET_DRIVER_HOST")
    return {
        "spark.driver.host": host or LOOPBACK,
        "spark.driver.bindAddress": "0.0.0.0" if host else LOOPBACK,
    }


def build_session(app_name: str, extra: dict[str, str] | None = None) -> SparkSession:
    """The session of a job: under spark-submit the one it was given, else a local one."""
    from pyspark.sql import SparkSession

    # The workers must run this interpreter, or they miss pyarrow and freshet.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "FRESHET_DRIVER_HOST" not in os.environ:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    builder = SparkSession.builder.appName(app_name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit sets it, and has chosen the master
        builder = builder.master(os.environ.get("FRESHET_SPARK_MASTER", "local[*]"))
    for name, value in {**spark_conf(), **(extra or {})}.items():
        builder = builder.config(name, value)
    return _started(builder, log_level())


def _started(builder: SparkSession.Builder, level: str) -> SparkSession:
    """The session, or what kept Java or Spark from starting in a sentence."""
    try:
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel(level)
    except Exception as error:  # Python's, py4j's or one of Java, as the case may be
        told = str(getattr(error, "java_exception", None) or error).splitlines()[0]
        raise FreshetError(
            f"Spark cannot start: {told.rstrip('.')}. See what Java says above, if anything, and look at "
            "FRESHET_SPARK_MASTER, FRESHET_DRIVER_HOST, FRESHET_DRIVER_MEMORY, FRESHET_JAVA_OPTIONS and "
            "JAVA_HOME."
        ) from error
    return session


def end_session(session: SparkSession) -> None:
    """Stop a session of this process with its JVM, and wait for the JVM's end."""
    gateway = session.sparkContext._gateway
    assert gateway is not None
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def fetch() -> None:
    """Fetch the jars from Maven into the tools folder, by Spark's own resolver."""
    from pyspark.sql import SparkSession

    ivy = tools_folder() / "ivy"
    ivy.mkdir(parents=True, exist_ok=True)
    session = (
        SparkSession.builder.appName("freshet-fetch")
        .master("local[1]")
        .config("spark.jars.packages", packages())
        .config("spark.jars.ivy", str(ivy))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", LOOPBACK)
        .config("spark.driver.bindAddress", LOOPBACK)
        .getOrCreate()
    )
    session.stop()


if __name__ == "__main__":
    try:
        jars()
    except FreshetError:
        fetch()
        jars()
