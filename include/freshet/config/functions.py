"""The functions of Spark SQL by whether a derived column may use them.

Allowed is a list, not everything that is not forbidden: a function that a later Spark adds, or that
gives another value in a retry, cannot slip in. The lists follow the groups of Spark's own registry.
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED = _names(
    """
    array array_append array_compact array_contains array_distinct array_except array_insert array_intersect
    array_join array_max array_min array_position array_prepend array_remove array_repeat array_size
    array_union arrays_overlap arrays_zip flatten get sequence slice sort_array bit_count bit_get getbit
    shiftleft shiftright shiftrightunsigned cardinality concat element_at reverse size try_element_at
    coalesce if ifnull nanvl nullif nullifzero nvl nvl2 zeroifnull bigint binary boolean cast date decimal
    double float int smallint string timestamp tinyint try_cast from_csv schema_of_csv to_csv add_months
    convert_timezone date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc
    dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime
    from_utc_timestamp hour last_day make_date make_dt_interval make_interval make_timestamp
    make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month monthname months_between next_day
    quarter second timestamp_micros timestamp_millis timestamp_seconds timestampadd timestampdiff to_date
    to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc
    try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_date
    try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear year
    crc32 hash md5 sha sha1 sha2 xxhash64 from_json get_json_object json_array_length json_object_keys
    schema_of_json to_json aggregate array_sort exists filter forall map_filter map_zip_with reduce
    transform transform_keys transform_values zip_with map map_concat map_contains_key map_entries
    map_from_arrays map_from_entries map_keys map_values str_to_map abs acos acosh asin asinh atan atan2
    atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees e exp expm1 factorial floor greatest
    hex hypot least ln log log10 log1p log2 mod negative pi pmod positive pow power radians rint round sec
    sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract unhex
    width_bucket equal_null isnan isnotnull isnull regexp_like ascii base64 bit_length btrim char
    char_length character_length chr concat_ws contains decode elt encode endswith find_in_set format_number
    format_string initcap instr is_valid_utf8 lcase left len length levenshtein locate lower lpad ltrim
    luhn_check make_valid_utf8 mask octet_length overlay position printf quote regexp_count regexp_extract
    regexp_extract_all regexp_instr regexp_replace regexp_substr repeat replace right rpad rtrim sentences
    soundex space split split_part startswith substr substring substring_index to_binary to_char to_number
    to_varchar translate trim try_to_binary try_to_number try_validate_utf8 ucase unbase64 upper
    validate_utf8 named_struct struct typeof parse_url try_parse_url try_url_decode url_decode url_encode
    is_variant_null parse_json schema_of_variant to_variant_object try_parse_json try_variant_get
    variant_get xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short
    xpath_string
    """
)

CHANGING = _names(
    """
    aes_encrypt curdate current_catalog current_database current_date current_schema current_time
    current_timestamp current_timezone current_user input_file_block_length input_file_block_start
    input_file_name java_method localtimestamp monotonically_increasing_id now rand randn random randstr
    reflect session_user shuffle spark_partition_id try_reflect uniform user uuid version
    """
)
"""Functions that may give another value in a retry of the same batch."""

BARE = _names("current_date current_time current_timestamp current_user localtimestamp session_user user")
"""Those of them that Spark also takes without parentheses, when no column has the name."""

AGGREGATES = _names(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set corr count count_if count_min_sketch covar_pop
    covar_samp every first first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg
    kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
    kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max max_by mean median min
    min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std
    stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg
    try_avg try_sum var_pop var_samp variance cume_dist dense_rank lag lead nth_value ntile percent_rank
    rank row_number session_window window window_time explode explode_outer inline inline_outer json_tuple
    posexplode posexplode_outer stack
    """
)
"""Functions of several rows (aggregates, window functions) or that make several rows of one."""

WORDS = _names(
    """
    all and as between by case char dec div distinct else end escape from ilike in interval is like not
    numeric or over regexp rlike select then varchar when where xor
    """
)
"""Words that may stand before a parenthesis without being a function."""
