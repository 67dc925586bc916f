"""From a spike to a verdict to the commands that mend it: detect, localise, experiment, verdict, response.

In come logs, runs and replays; out come events, rankings, a diagnosis verdict and a response. `detect` finds events in
any training log, `localise` says which ranks, samples and shards stand out, `evidence` reads the logs of machines,
`diagnose` draws the verdict, `respond` plans what to type, `preflight` checks a run before it begins. The core of each
is pure: numbers and facts in, values out.

What two published texts on training stability describe is built here and in `dataguard.torch`, and mended where it was
wrong: rows A1 to A19 are the systems of the first, C1 to C26 those of the second. Where each is, and the tests that
fail where its mend is undone (`tests/triage/test_rows.py` holds this table against both):

    row       function                                                    tests
    A1        dataguard.triage.diagnose.checks:walked                     tests/triage/diagnose/test_checks.py
              test_the_walk_stops_at_the_first_conclusive_check_and_shows_what_decided_nothing
    A1        dataguard.triage.diagnose.checks:in_order                   tests/triage/diagnose/test_checks.py
              test_cheap_checks_come_first_by_their_computed_cost
              test_a_check_that_became_dear_comes_late
    A2        dataguard.triage.detect.episode:classified                  tests/triage/detect/test_detector.py
              test_a_spike_that_recovers_in_30_steps_is_transient_and_its_onset_is_where_the_gradient_rose
              test_a_hard_batch_is_told_at_once_and_classified_after_its_aftermath
    A2        dataguard.triage.detect.episode:visible_shift               tests/triage/detect/test_detector.py
              test_a_fatal_spike_of_six_hundredths_that_settles_at_fifteen_thousandths_is_absorbing
    A3        dataguard.triage.detect.drift:DriftWatch                    tests/triage/detect/test_detector.py
              test_a_gradient_that_creeps_up_is_a_drift_that_no_window_sees
    A4        dataguard.triage.detect.faults:Faults                       tests/triage/detect/test_detector.py
              test_what_is_not_finite_is_an_event_and_enters_no_window
    A4        dataguard.triage.detect.faults:Stalls                       tests/triage/detect/test_detector.py
              test_a_stall_is_a_gap_unlike_any_before
    A4        dataguard.triage.silence:silence_of                         tests/triage/test_silence.py
              test_a_rank_that_logged_less_of_the_last_step_is_named
              test_of_ranks_that_all_began_the_last_step_the_one_with_fewer_samples_is_named
    A5        dataguard.torch.monitoring.rank_outliers:RankWatch          tests/torch/test_rank_outliers.py
              test_one_rank_in_512_is_named_where_the_mean_shows_nothing
              test_below_eight_a_rank_is_held_against_its_own_past
              test_one_rank_that_is_all_over_the_place_hides_no_other
    A5        dataguard.triage.localise.ranks:judge_ranks                 tests/triage/localise/test_ranks.py
              test_a_rank_that_stands_out_over_other_data_is_persistent
              test_a_rank_that_is_far_out_hides_no_other
              test_a_rank_is_no_part_of_what_it_is_held_against
    A5        dataguard.triage.diagnose.rates:moved_mean                  tests/triage/diagnose/test_checks.py
              test_one_sick_rank_hardly_moves_the_mean
    A6        dataguard.torch.canary.taking:take                          tests/torch/canary/test_canary.py
              test_a_record_has_every_tensor_and_repeats_to_the_bit
    A6        dataguard.torch.canary.comparing:compare                    tests/torch/canary/test_comparing.py
              test_a_mismatch_without_a_baseline_counts_for_nothing
    A7        dataguard.triage.detect.profiles:seed_3sigma                tests/triage/detect/test_profiles.py
              test_rules_are_those_of_their_sources
              test_what_one_nan_does_to_each_rule_is_as_told
    A7        dataguard.triage.detect.detector:Detector                   tests/triage/detect/test_detector.py
              test_the_next_300_steps_are_judged_as_if_it_had_not_been_there
    A8        dataguard.torch.experiment.runner:experiment                tests/torch/experiment/test_experiment.py
              test_a_bad_batch_shows_from_both_checkpoints_and_the_placebo_from_neither
              test_a_sick_node_is_told_by_another
    A8        dataguard.triage.diagnose.cells:replay_of                   tests/triage/diagnose/test_cells.py
              test_what_shows_nothing_anywhere_is_not_reproduced_and_never_more
    A9        dataguard.triage.diagnose.costs:replay_node_seconds         tests/triage/diagnose/test_checks.py
              test_a_replay_costs_its_steps_times_their_time_times_the_nodes
    A10       dataguard.triage.respond.configuring:is_configuration       tests/triage/respond/test_planner.py
              test_spikes_that_recur_under_climbing_logits_are_not_skipped
    A11       dataguard.torch.stability.rates:largest_update_ratio        tests/torch/stability/test_rates.py
              test_a11_the_largest_ratio_of_one_gradient
    A11       dataguard.torch.watching.sample:Sample                      tests/torch/test_watching.py
              test_every_value_is_that_of_a_plain_computation
    A11       dataguard.triage.evidence.optimizer:optimizer_signs         tests/triage/evidence/test_optimizer.py
              test_update_ratios_above_what_one_outlier_can_give
    A12       dataguard.torch.stability.rates:usual_update_ratio          tests/torch/stability/test_rates.py
              test_a12_an_outlier_is_no_smaller_than_a_normal_step_under_noise
    A13       dataguard.torch.watching.attention:LogitWatch               tests/torch/test_watching.py
              test_the_largest_logit_of_a_fused_attention
    A13       dataguard.torch.watching.sample:Sample                      tests/torch/test_watching_heads.py
              test_one_head_that_runs_away_is_named
    A14       dataguard.torch.stability.log_partition:z_loss              tests/torch/stability/test_losses.py
              test_a_weight_is_asked_for
    A15       dataguard.torch.watching.numbers:ratio                      tests/torch/stability/test_rates.py
              test_a15_the_floor_is_ten_epsilon
              test_a15_at_the_epsilon_floor_a_moderate_gradient_moves_far
    A15       dataguard.triage.evidence.optimizer:optimizer_signs         tests/triage/evidence/test_optimizer.py
              test_second_moments_at_the_floor
    A16       dataguard.triage.diagnose.signature:cell                    tests/triage/diagnose/test_signature.py
              test_each_cell
    A16       dataguard.triage.diagnose.signature:signature               tests/triage/diagnose/test_signature.py
              test_the_other_node_tells_apart_the_two_cells_that_say_the_same
    A16       dataguard.triage.diagnose.scoring:can_convict               tests/triage/diagnose/test_table.py
              test_hardware_needs_more_than_an_outlier_and_a_replay_that_shows_nothing
    A16       dataguard.triage.diagnose.rates:chance_of_outlier           tests/triage/diagnose/test_checks.py
              test_some_rank_of_512_stands_out_by_chance
    A16       dataguard.triage.evidence.matching:match                    tests/triage/evidence/test_machine_logs.py
              test_a_line_matches_by_node_and_time
              test_among_so_many_devices_a_match_tells_nothing
    A16       dataguard.torch.experiment.runner:experiment                tests/torch/experiment/test_experiment.py
              test_the_baseline_is_taken_over_the_whole_horizon
    A16       dataguard.triage.mitigation:mitigation_of                   tests/triage/test_mitigation.py
              test_a_skip_that_got_past_it_helped
              test_other_machines_that_got_past_it_helped
    A16       dataguard.triage.gathering:gather                           tests/triage/test_gathering.py
              test_every_fact_is_that_of_its_place_with_its_numbers
    A17       dataguard.triage.respond.skipping:span_of                   tests/triage/respond/test_planner.py
              test_the_range_covers_the_event_where_the_relative_rule_ends_before_it
    A17       dataguard.triage.respond.planner:plan_response              tests/triage/respond/test_planner.py
              test_bad_data_is_rewound_skipped_and_quarantined
    A18       dataguard.triage.respond.retention:advise_retention         tests/triage/respond/test_retention.py
              test_it_says_pass_just_where_a_pruning_trainer_can_always_rewind
    A18       dataguard.triage.evidence.xid:xid_meaning                   tests/triage/evidence/test_xid.py
              test_codes_of_hardware
              test_codes_that_are_usually_the_application
    A18       dataguard.triage.evidence.matching:match                    tests/triage/evidence/test_machine_logs.py
              test_collective_libraries_complain_of_something_earlier
    A19       dataguard.triage.diagnose.rates:interruptions_per_day       tests/triage/diagnose/test_checks.py
              test_interruptions_scale_with_devices
    C1        dataguard.torch.stability.judge:AnomalyJudge                tests/torch/stability/test_step.py
              test_the_judge_is_the_projects_own_signal_without_padding
    C1        dataguard.score.tokens:score_tokens                         tests/score/test_token_oracles.py
              test_anomaly_of_a_period
    C2        dataguard.torch.stability.step:train_step                   tests/torch/stability/test_step_ranks.py
              test_every_rank_decides_the_same
    C2        dataguard.torch.stability.judge:AnomalyJudge                tests/torch/stability/test_step.py
              test_the_rule_of_the_seed_over_the_global_batch
    C3        dataguard.torch.stability.rates:peak_learning_rate          tests/torch/stability/test_rates.py
              test_c3_both_checks_of_the_text
    C4        dataguard.torch.stability.probe:probe                       tests/torch/stability/test_probe.py
              test_an_overflow_of_float16_is_found_where_it_begins
              test_attention_logits_that_overflow_are_told_by_their_attention
    C5        dataguard.triage.evidence.optimizer:optimizer_signs         tests/triage/evidence/test_optimizer.py
              test_rows_of_tokens_that_hardly_occur_are_no_sign
    C5        dataguard.torch.stability.probe:probe                       tests/torch/stability/test_probe.py
              test_what_the_optimizer_holds_is_told_by_block_and_not_moved
    C6        dataguard.torch.stability.qk_norm:QKNormAttention           tests/torch/stability/test_qk_norm.py
              test_a_query_that_sees_nothing_gives_zeros_and_finite_gradients
    C7        dataguard.torch.stability.qk_clip:qk_clip_                  tests/torch/stability/test_qk_clip.py
              test_the_largest_logit_is_tau_on_the_same_batch
              test_an_infinite_or_nan_logit_raises_and_changes_nothing
    C8        dataguard.torch.stability.log_partition:z_loss              tests/torch/stability/test_losses.py
              test_the_mean_over_what_counts
              test_it_is_computed_in_float32
    C9        dataguard.torch.stability.initial:init_transformer_weights  tests/torch/stability/test_initial.py
              test_logits_have_a_standard_deviation_of_one
              test_the_residual_stream_is_the_same_at_every_depth
    C10       dataguard.torch.stability.embedding:clip_embedding_norm_    tests/torch/stability/test_losses.py
              test_a_radius_of_one_clips_half_the_rows_at_init
    C11       dataguard.torch.stability.step:train_step                   tests/torch/stability/test_step.py
              test_the_limit_is_on_the_raw_norm_against_the_runs_own_past
    C11, C12  dataguard.torch.stability.step:train_step                   tests/torch/stability/test_step.py
              test_every_outcome_has_every_key_and_no_nan
    C12       dataguard.torch.stability.step:train_step                   tests/torch/stability/test_step.py
              test_too_many_skips_in_a_row_end_it_with_a_message
    C12       dataguard.torch.monitoring.decision:Skips                   tests/torch/test_detecting.py
              test_skips_in_a_row_are_counted_across_a_resume
    C12       dataguard.torch.stability.history:GradientHistory           tests/torch/stability/test_step.py
              test_what_is_not_finite_enters_no_history
    C12       dataguard.torch.stability.step:train_step                   tests/torch/stability/test_step_ranks.py
              test_every_rank_decides_the_same
    C13, C14  dataguard.triage.diagnose.verdict:verdict_of                tests/triage/diagnose/test_table.py
              test_there_is_one_verdict_for_each_and_none_is_another_than_before
    C14       dataguard.triage.diagnose.verdict:verdict_of                tests/triage/diagnose/test_printed_tree.py
              test_ours_answers_each_of_them_once_whatever_size_and_length
              test_ours_has_the_branches_that_it_lacks
    C15       dataguard.torch.monitoring.monitor:Monitor                  tests/torch/test_detecting.py
              test_each_step_is_judged_whatever_is_kept
    C15       dataguard.torch.monitoring.values:take                      tests/torch/test_monitor_values.py
              test_all_values_on_a_device_come_in_one_copy
    C15       dataguard.triage.alerts:Alerts                              tests/triage/test_alerts.py
              test_a_key_is_sent_once_in_a_cooldown_and_the_count_goes_with_the_next
    C16       dataguard.torch.stability.ranks:nonfinite_ranks             tests/torch/stability/test_step_ranks.py
              test_the_rank_is_named
    C16       dataguard.torch.stability.ranks:nonfinite_ranks             tests/torch/stability/test_step.py
              test_without_a_process_group_this_is_rank_0
    C17       dataguard.torch.monitoring.monitor:Monitor                  tests/torch/test_detecting_processes.py
              test_each_rank_still_logs_its_own
    C17       dataguard.triage.curve:curve_of_run                         tests/triage/test_curve.py
              test_ranks_are_joined_and_a_nan_of_one_is_the_step_s
    C18       dataguard.triage.diagnose.verdict:diagnose                  tests/triage/diagnose/test_stories.py
              test_story_1_a_silent_bug_in_deduplication_has_no_spike
              test_story_2_the_end_of_the_warm_up
              test_story_3_attention_in_half_precision
              test_story_4_the_zombie_gpu
    C18       dataguard.audit.drift:drift_of                              tests/audit/test_drift.py
              test_a_source_that_lost_records_is_told
    C19       dataguard.triage.checklist:walk                             tests/triage/test_checklist.py
              test_what_is_known_is_answered_with_its_evidence
              test_what_is_to_be_done_is_missing_until_it_stands_in_the_journal
              test_what_is_not_known_is_missing_and_never_answered
    C20       dataguard.torch.stability.probe:probe                       tests/torch/stability/test_probe.py
              test_the_model_under_test_is_as_it_was
              test_what_goes_in_float32_too_is_not_blamed_on_the_type
              test_the_first_that_goes_backward
    C21       dataguard.triage.preflight.points:judge                     tests/triage/preflight/test_points.py
              test_a_point_comes_to_what_is_known
    C21       dataguard.triage.preflight.points_of_model:warms_up         tests/triage/preflight/test_points.py
              test_the_reason_of_the_warm_up_says_what_one_percent_is
    C22       dataguard.torch.stability.rates:update_amplification        tests/torch/stability/test_rates.py
              test_c22_exercise_2_with_the_real_optimizer
    C22       dataguard.torch.stability.qk_norm:QKNormAttention           tests/torch/stability/test_qk_norm.py
              test_exercise_3
    C22, C23  dataguard.torch.stability.softcap:attn_logit_softcap        tests/torch/stability/test_qk_norm.py
              test_the_cap_behind_the_mask_would_show_what_is_hidden
    C23       dataguard.torch.stability.softcap:attn_logit_softcap        tests/torch/stability/test_qk_norm.py
              test_the_cap_keeps_the_type_and_the_band
    C24       dataguard.torch.stability.embedding:clip_embedding_norm_    tests/torch/stability/test_losses.py
              test_rows_beyond_the_radius_come_back_onto_it
    C25       dataguard.triage.localise.localising:localise               tests/triage/localise/test_localise.py
              test_a_bad_shard_is_found_with_its_signal_and_its_samples
              test_one_odd_sample_is_no_data_while_its_loss_is_as_its_neighbours
    C25       dataguard.triage.localise.localising:localise               tests/triage/localise/test_forms.py
              test_a_shard_of_one_repeated_sequence_of_tokens_is_found_though_the_loss_falls
    C26       dataguard.audit.mixture:mixture_of                          tests/audit/test_audit.py
              test_a_mixture_is_held_against_what_is_there
    C26       dataguard.triage.preflight.points_of_run:checks_mixture     tests/triage/preflight/test_points.py
              test_a_point_comes_to_what_is_known
    C26       dataguard.triage.preflight.points_of_run:checks_lengths     tests/triage/preflight/test_points.py
              test_a_point_comes_to_what_is_known
"""
