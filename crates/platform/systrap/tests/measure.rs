//! Costs of the basic operations: `cargo test -p systrap --test measure -- --ignored --nocapture`.

#[test]
#[ignore = "a measurement"]
fn measure() {
    let platform = systrap::Systrap::new().unwrap_or_else(|e| panic!("{e}"));
    let per_us = hostsys::cpu::tsc_per_microsecond();
    let outcome = conformance::World::new(platform.clone()).run(&conformance::compile("measure"));
    for line in outcome.output.lines() {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let ns: Vec<u64> = words.map(|w| w.parse::<u64>().unwrap_or(0) * 1000 / per_us).collect();
        println!("{name:12} min {:>8} ns, mean {:>8} ns", ns[0], ns[1]);
    }
    let image = conformance::compile("hello");
    let start = std::time::Instant::now();
    for _ in 0..100 {
        assert_eq!(conformance::World::new(platform.clone()).run(&image).code, 7);
    }
    println!("new space, load, run, end: {} us", start.elapsed().as_micros() / 100);
}
