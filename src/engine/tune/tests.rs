//! Tests the tuner with pipelines in virtual time, and with nonsensical figures.

use std::time::Duration;

use infeed_core::report::{TuneReason, Tuned};
use proptest::prelude::*;

use super::{
    control::{Look, Range, Scope, Sums, Tuner},
    sim::{Cost, PIPE, Pipe, Sim, Went, fixed, noise, tuned},
};

fn scope(cores: usize) -> Scope {
    Scope {
        cores,
        reads: true,
        computes: true,
        workers: Range { start: cores, least: 1, most: 8 * cores },
        prefetch: Range { start: 4, least: 4, most: 64 },
    }
}

/// The best cell of a full sweep.
fn best(pipe: Pipe, scope: &Scope) -> (f64, usize, usize) {
    let mut best = (0.0, 0, 0);
    let steps = |range: &Range, by: usize| {
        let all = std::iter::successors(Some(range.least), move |n| Some(n * by));
        let most = range.most;
        all.take_while(move |n| *n <= most).collect::<Vec<_>>()
    };
    for workers in steps(&scope.workers, 2) {
        for prefetch in steps(&scope.prefetch, 4) {
            let Went { batches_per_second: rate, .. } = fixed(pipe, workers, prefetch);
            if rate > best.0 {
                best = (rate, workers, prefetch);
            }
        }
    }
    best
}

/// Within 5 % of the best cell after half a minute.
fn near_the_best(name: &str, pipe: Pipe, scope: Scope) -> (Sim, Went) {
    let (rate, workers, prefetch) = best(pipe, &scope);
    let (sim, went) = tuned(pipe, scope);
    let got = went.batches_per_second;
    assert!(
        got >= 0.95 * rate,
        "{name}: {got:.1} batches/s at {} workers, {} ahead; the best is {rate:.1} at {workers}, {prefetch}: {:#?}",
        sim.workers,
        sim.prefetch,
        sim.decisions.iter().map(ToString::to_string).collect::<Vec<_>>()
    );
    (sim, went)
}

#[test]
fn slow_decoding_keeps_all_cores() {
    let pipe = Pipe { compute: Cost::of(0.003), ..PIPE };
    let (sim, _) = near_the_best("slow decode", pipe, scope(8));
    assert!((7..=8).contains(&sim.workers), "{:#?}", sim.decisions);
    assert_eq!(sim.prefetch, 4, "more batches ahead of a trainer that always waits help nobody");
}

#[test]
fn threads_that_wait_for_a_disk_are_more_than_cores() {
    let pipe = Pipe { cores: 2.0, read: Cost::of(0.016), ..PIPE };
    let (sim, _) = near_the_best("slow disk", pipe, scope(2));
    assert!(sim.workers > 8, "{:#?}", sim.decisions);
    let first = sim.decisions[0];
    assert_eq!((first.what, first.from, first.why), (Tuned::Workers, 2, TuneReason::Reading));
}

#[test]
fn threads_that_wait_for_a_network_are_many() {
    for read in [0.02, 0.1, 0.3] {
        let pipe = Pipe { cores: 2.0, read: Cost::of(read), ..PIPE };
        let scope = Scope { workers: Range { start: 2, least: 1, most: 64 }, ..scope(2) };
        let (sim, _) = near_the_best("a network", pipe, scope);
        assert!(sim.workers > 32, "{read} s a file: {:#?}", sim.decisions);
    }
}

#[test]
fn a_disk_that_serves_few_at_a_time_is_left_with_few() {
    let pipe = Pipe { cores: 2.0, read: Cost::of(0.004), disk: 4.0, ..PIPE };
    let (sim, _) = near_the_best("busy disk", pipe, scope(2));
    assert!(sim.workers <= 8, "{:#?}", sim.decisions);
    assert!(sim.decisions.iter().any(|decision| decision.why == TuneReason::NoGain), "{:#?}", sim.decisions);
}

#[test]
fn a_slow_store_changes_nothing() {
    let pipe = Pipe { arrives: 0.05, ..PIPE };
    let (sim, _) = near_the_best("slow store", pipe, scope(8));
    assert_eq!((sim.workers, sim.prefetch), (8, 4), "{:#?}", sim.decisions);
}

#[test]
fn a_slow_trainer_is_kept_up_with_by_few() {
    // Work for one and a half threads.
    let pipe = Pipe { step_gpu: 0.030, compute: Cost::of(0.0014), ..PIPE };
    let (sim, went) = near_the_best("slow trainer", pipe, scope(8));
    assert!((2..=4).contains(&sim.workers), "{:#?}", sim.decisions);
    assert!(went.waited < 0.01, "{went:?}");
}

#[test]
fn a_trainer_that_needs_a_core_gets_it() {
    // Two threads and the trainer on two cores: 1.2 times its step. One thread leaves it a core.
    let pipe = Pipe { cores: 2.0, step_cpu: 0.040, compute: Cost::of(0.001), ..PIPE };
    let (sim, went) = near_the_best("trainer on the cores", pipe, scope(2));
    assert_eq!(sim.workers, 1, "{:#?}", sim.decisions);
    assert!(went.waited < 0.01, "{went:?}");
    let all = fixed(pipe, 2, 4);
    assert!(went.batches_per_second > 1.1 * all.batches_per_second, "{went:?} {all:?}");
}

#[test]
fn uneven_work_gets_more_batches_ahead() {
    // Every 300th job takes as long as seven steps.
    let pipe = Pipe {
        step_gpu: 0.030,
        compute: Cost { mean: 0.0005, rare: (300, 0.200) },
        jobs_per_batch: 16,
        cores: 1.0,
        ..PIPE
    };
    let (sim, went) = near_the_best("uneven", pipe, scope(1));
    assert!(sim.prefetch >= 8, "{:#?}", sim.decisions);
    assert!(went.waited < 0.03, "{went:?}");
    let first = sim.decisions.iter().find(|decision| decision.what == Tuned::Prefetch).expect("it grew");
    assert!([TuneReason::Uneven, TuneReason::Room].contains(&first.why), "{first:?}");
}

#[test]
fn threads_without_room_get_it() {
    // A batch is one job: with four ahead, twelve of sixteen threads are idle.
    let pipe = Pipe { cores: 16.0, jobs_per_batch: 1, compute: Cost::of(0.004), ..PIPE };
    let (sim, _) = near_the_best("no room", pipe, scope(16));
    assert!(sim.prefetch >= 16, "{:#?}", sim.decisions);
    assert_eq!(sim.decisions[0].why, TuneReason::Room);
}

#[test]
fn threads_that_hinder_each_other_become_fewer() {
    let pipe = Pipe { thrash: (0.4, 4), ..PIPE };
    let (sim, _) = near_the_best("thrashing", pipe, scope(8));
    assert!(sim.workers <= 6, "{:#?}", sim.decisions);
}

#[test]
fn threads_that_bring_nothing_are_given_up() {
    // Memory is the limit: four threads take all of it.
    let pipe = Pipe { thrash: (0.25, 4), ..PIPE };
    let (sim, went) = near_the_best("plateau", pipe, scope(8));
    assert!(sim.workers <= 6, "{:#?}", sim.decisions);
    assert!(went.cpu < fixed(pipe, 8, 4).cpu, "{went:?}");
}

/// A random pipeline, with the settings to adjust.
fn any_pipe(n: u64) -> (Pipe, Scope) {
    let mut draws = 0;
    let mut draw = || {
        draws += 1;
        noise(n * 1000 + draws)
    };
    // Every order of magnitude is as likely.
    let mut between = |least: f64, most: f64| least * (most / least).powf(draw());
    let cores = 1 << between(1.0, 5.999).floor() as usize >> 1;
    let jobs_per_batch = between(1.0, 100.0) as usize;
    let mut compute = Cost::of(between(0.0004, 0.01));
    let read = Cost::of(if n.is_multiple_of(2) { between(0.0003, 0.03) } else { 0.0 });
    if n.is_multiple_of(3) {
        compute.rare = (between(20.0, 2000.0) as u64, compute.mean * between(5.0, 60.0));
    }
    let disk = if n.is_multiple_of(4) { between(1.0, 40.0) } else { f64::INFINITY };
    let thrash = if n.is_multiple_of(5) { (between(0.01, 0.2), (cores / 2).max(1)) } else { (0.0, 0) };
    let pipe = Pipe { cores: cores as f64, jobs_per_batch, read, compute, thrash, disk, ..PIPE };
    let work = compute.mean * jobs_per_batch as f64 / cores as f64;
    let step = work * between(0.3, 6.0);
    let pipe = match n / 5 % 4 {
        0 => pipe,
        1 => Pipe { step_gpu: step, ..pipe },
        2 => Pipe { step_cpu: step, ..pipe },
        _ => Pipe { arrives: step, ..pipe },
    };
    let most = if n.is_multiple_of(2) { (8 * cores).clamp(16, 128) } else { cores };
    (pipe, Scope { workers: Range { start: cores, least: 1, most }, ..scope(cores) })
}

#[test]
fn pipelines_of_any_kind_come_near_their_best() {
    let count = if std::env::var_os("INFEED_SLOW_TESTS").is_some() { 400 } else { 40 };
    let (mut far, mut start_far) = (Vec::new(), 0);
    for n in 0..count {
        let (pipe, scope) = any_pipe(n);
        let (rate, ..) = best(pipe, &scope);
        let (sim, went) = tuned(pipe, scope);
        let share = went.batches_per_second / rate;
        if share < 0.95 {
            far.push((n, share, sim.workers, sim.prefetch));
        }
        let start = fixed(pipe, scope.workers.start, scope.prefetch.start);
        start_far += usize::from(start.batches_per_second < 0.95 * rate);
        // Rare long jobs are random, so two intervals differ by them.
        assert!(share > 0.8, "pipeline {n}: {share:.3} of {rate:.1} batches/s: {pipe:#?} {:#?}", sim.decisions);
    }
    assert!(
        far.len() as u64 * 10 <= count && far.len() * 4 < start_far,
        "{far:?}; {start_far} with the starting numbers"
    );
}

#[test]
fn a_trainer_that_gets_faster_gets_all_threads_at_once() {
    let pipe = Pipe { step_gpu: 0.100, ..PIPE };
    let mut tuner = Some(Tuner::new(scope(8)));
    let mut slow = Sim::new(pipe, 8, 4);
    slow.run(20.0, &mut tuner);
    assert!(slow.workers < 4, "{:#?}", slow.decisions);
    let mut fast = Sim::new(Pipe { step_gpu: 0.001, ..pipe }, slow.workers, slow.prefetch);
    tuner.as_mut().unwrap().begin();
    fast.workers = tuner.as_ref().unwrap().workers();
    assert_eq!(fast.workers, 8, "a stream begins with all of them");
    fast.run(3.0, &mut tuner);
    assert!(fast.workers >= 7, "{:#?}", fast.decisions);
}

#[test]
fn trials_become_rare() {
    let pipe = Pipe { cores: 2.0, read: Cost::of(0.004), disk: 4.0, ..PIPE };
    let mut tuner = Some(Tuner::new(scope(2)));
    let mut sim = Sim::new(pipe, 2, 4);
    sim.run(100.0, &mut tuner);
    let early = sim.decisions.len();
    sim.run(700.0, &mut tuner);
    let late = sim.decisions.len() - early;
    assert!(late <= 12, "{late} decisions in ten minutes: {:#?}", &sim.decisions[early..]);
}

/// The most changes of workers within 15 s.
fn most_changes(sim: &Sim) -> usize {
    let workers = sim.decisions.iter().filter(|decision| decision.what == Tuned::Workers);
    let at: Vec<Duration> = workers.map(|decision| decision.at).collect();
    let within = |n: usize| at[n..].iter().take_while(|time| **time <= at[n] + Duration::from_secs(15)).count();
    (0..at.len()).map(within).max().unwrap_or(0)
}

#[test]
fn threads_do_not_swing_while_other_processes_come_and_go() {
    // Two cores, partly used by other processes; the trainer waits now and then in any case.
    let pipe = Pipe { cores: 2.0, ..PIPE };
    // If threads wait for files, more threads are tried, too.
    let pipes = [
        ("on a GPU", 4, Pipe { step_gpu: 0.030, ..pipe }),
        ("on a faster GPU", 4, Pipe { step_gpu: 0.020, ..pipe }),
        ("on the cores", 4, Pipe { step_cpu: 0.030, ..pipe }),
        ("on both", 4, Pipe { step_cpu: 0.010, step_gpu: 0.020, ..pipe }),
        ("that is quick", 4, Pipe { step_cpu: 0.010, ..pipe }),
        ("behind files", 5, Pipe { step_cpu: 0.020, read: Cost::of(0.0005), ..pipe }),
    ];
    let (mut waited, mut with_two) = (0.0, 0.0);
    for (name, at_most, pipe) in pipes {
        for others in [0.5, 1.0, 1.4] {
            for seed in 0..6 {
                let pipe = Pipe { others: (others, seed), ..pipe };
                let scope = scope(2);
                let mut sim = Sim::new(pipe, scope.workers.start, scope.prefetch.start);
                let went = sim.run(60.0, &mut Some(Tuner::new(scope)));
                let most = most_changes(&sim);
                assert!(
                    most <= at_most,
                    "a trainer {name}, others {others}, seed {seed}: {most}: {:#?}",
                    sim.decisions
                );
                waited += went.waited;
                with_two += Sim::new(pipe, 2, 4).run(60.0, &mut None).waited;
            }
        }
    }
    assert!(waited <= with_two, "{waited} with two threads or fewer, {with_two} with two");
}

#[test]
fn a_clock_that_steps_does_no_harm() {
    // An hour forward every 7 s, and back again.
    let steps: fn(f64) -> f64 = |now| if (now / 7.0) as u64 % 2 == 1 { 3600.0 } else { 0.0 };
    for pipe in [Pipe { cores: 2.0, read: Cost::of(0.016), ..PIPE }, Pipe { cores: 2.0, step_gpu: 0.030, ..PIPE }] {
        let mut sim = Sim::new(pipe, 2, 4);
        sim.clock_error = steps;
        let mut tuner = Some(Tuner::new(scope(2)));
        sim.run(30.0, &mut tuner);
        let went = sim.run(60.0, &mut tuner);
        let (rate, ..) = best(pipe, &scope(2));
        assert!(went.batches_per_second > 0.95 * rate, "{went:?}, the best is {rate}: {:#?}", sim.decisions);
    }
}

#[test]
fn numbers_that_were_asked_for_stay() {
    let fixed = Scope { workers: Range::fixed(3), prefetch: Range::fixed(2), ..scope(8) };
    for pipe in [PIPE, Pipe { step_gpu: 0.2, ..PIPE }, Pipe { read: Cost::of(0.02), jobs_per_batch: 1, ..PIPE }] {
        let (sim, _) = tuned(pipe, fixed);
        assert!(sim.decisions.is_empty(), "{:#?}", sim.decisions);
    }
}

#[test]
fn what_memory_does_not_hold_is_not_asked_for_again_at_once() {
    let pipe = Pipe { cores: 2.0, read: Cost::of(0.016), ..PIPE };
    let mut sim = Sim::new(pipe, 2, 4);
    let mut tuner = Tuner::new(scope(2));
    let (mut asked, mut looks) = (0, 0);
    for tenth in 1..300 {
        sim.run(f64::from(tenth) / 10.0, &mut None);
        let look = sim.look();
        looks += 1;
        if let Some(decision) = tuner.look(&look) {
            asked += 1;
            // Three threads find room.
            tuner.reached(&decision, if decision.what == Tuned::Workers { decision.to.min(3) } else { decision.to });
            sim.workers = tuner.workers();
        }
    }
    assert!(asked > 0 && asked < 10 && tuner.workers() <= 3, "{asked} of {looks}");
}

#[test]
fn cores_that_were_left_to_engines_are_taken_where_threads_are_what_is_missing() {
    let workers = Range { start: 6, least: 1, most: 8 };
    let scope = Scope { reads: false, computes: false, workers, ..scope(8) };
    let (sim, _) = near_the_best("decoding", Pipe { compute: Cost::of(0.003), ..PIPE }, scope);
    let first = sim.decisions[0];
    assert_eq!((first.what, first.from, first.to, first.why), (Tuned::Workers, 6, 8, TuneReason::Waited));
    assert_eq!(sim.workers, 8, "{:#?}", sim.decisions);
    // If two more threads hinder each other, they are removed, and rarely tried again.
    let (sim, _) = near_the_best("crowded", Pipe { compute: Cost::of(0.003), thrash: (0.4, 6), ..PIPE }, scope);
    let back = sim.decisions[1];
    assert_eq!((back.from, back.to, back.why), (8, 6, TuneReason::NoGain));
    assert!(sim.decisions.iter().filter(|decision| decision.to == 8).count() <= 4, "{:#?}", sim.decisions);
}

#[test]
fn several_streams_have_all_threads() {
    let mut tuner = Tuner::new(scope(8));
    let mut sim = Sim::new(Pipe { step_gpu: 0.2, ..PIPE }, 8, 4);
    let mut running = Some(tuner);
    sim.run(15.0, &mut running);
    tuner = running.unwrap();
    assert!(tuner.workers() < 8);
    let look = Look { shared: true, ..sim.look() };
    tuner.look(&look);
    let decision =
        tuner.look(&Look { sums: Sums { at: look.sums.at + Duration::from_millis(100), ..look.sums }, ..look });
    let decision = decision.expect("the threads come back");
    assert_eq!((decision.to, decision.why), (8, TuneReason::Shared));
}

proptest! {
    #[test]
    fn figures_without_sense_lead_nowhere_that_is_forbidden(
        looks in prop::collection::vec((0u64..40_000, prop::array::uniform12(0u64..5_000), any::<bool>(), 0u64..9), 0..300),
        least in 1usize..4, start in 1usize..9, more in 0usize..100,
    ) {
        let workers = Range { start: start.max(least), least, most: start.max(least) + more };
        let prefetch = Range { start, least: start, most: start + more };
        let mut tuner = Tuner::new(Scope { workers, prefetch, ..scope(start) });
        for (at, figures, polling, finished) in looks {
            let ms = |n: usize| Duration::from_millis(figures[n]);
            let sums = Sums {
                at: Duration::from_millis(at),
                batches: figures[0],
                rows: figures[1],
                jobs: figures[2],
                waited: ms(3),
                blocked: ms(4),
                swings: figures[5],
                worked: ms(6),
                read: ms(7),
                read_cpu: ms(8),
                made: ms(9),
                made_cpu: ms(10),
                cpu: ms(11),
            };
            let look = Look { sums, polling, finished, fewest: Some(finished), shared: figures[0] % 7 == 0 };
            if let Some(decision) = tuner.look(&look) {
                let range = if decision.what == Tuned::Workers { workers } else { prefetch };
                prop_assert!((range.least..=range.most).contains(&decision.to), "{:?}", decision);
                prop_assert!(decision.waiting.is_finite() && decision.busy <= 1.0);
                tuner.reached(&decision, decision.to);
            }
            if figures[1] % 50 == 0 {
                tuner.begin();
            }
            prop_assert!((workers.least..=workers.most).contains(&tuner.workers()));
            prop_assert!((prefetch.least..=prefetch.most).contains(&tuner.prefetch()));
        }
    }
}
