"""The expectations a definition may name: those that Great Expectations computes on Spark.

They stand here, and not with the validation, because importing Great Expectations takes seconds.
"""

_NAMES = """
    column_distinct_values_to_be_in_set column_distinct_values_to_contain_set
    column_distinct_values_to_equal_set column_kl_divergence_to_be_less_than column_max_to_be_between
    column_mean_to_be_between column_median_to_be_between column_min_to_be_between
    column_most_common_value_to_be_in_set column_pair_values_a_to_be_greater_than_b
    column_pair_values_to_be_equal column_pair_values_to_be_in_set
    column_proportion_of_non_null_values_to_be_between column_proportion_of_unique_values_to_be_between
    column_quantile_values_to_be_between column_stdev_to_be_between column_sum_to_be_between column_to_exist
    column_unique_value_count_to_be_between column_value_lengths_to_be_between column_value_lengths_to_equal
    column_value_z_scores_to_be_less_than column_values_to_be_between column_values_to_be_dateutil_parseable
    column_values_to_be_decreasing column_values_to_be_in_set column_values_to_be_in_type_list
    column_values_to_be_increasing column_values_to_be_json_parseable column_values_to_be_null
    column_values_to_be_of_type column_values_to_be_unique column_values_to_match_json_schema
    column_values_to_match_regex column_values_to_match_regex_list column_values_to_match_strftime_format
    column_values_to_not_be_in_set column_values_to_not_be_null column_values_to_not_match_regex
    column_values_to_not_match_regex_list compound_columns_to_be_unique multicolumn_sum_to_equal
    select_column_values_to_be_unique_within_record table_column_count_to_be_between
    table_column_count_to_equal table_columns_to_match_ordered_list table_columns_to_match_set
    table_row_count_to_be_between table_row_count_to_equal
"""

EXPECTATIONS = tuple(f"expect_{name}" for name in _NAMES.split())

COLUMN_ARGUMENTS = ("column", "column_A", "column_B")
COLUMN_LIST_ARGUMENTS = ("column_list",)
