//! `poison APP OUT [ONE_IN SEED [FIRST_BLOCK LAST_BLOCK]]`: overwrites what is
//! claimed dead; with no numbers, an empty rewrite.

#[path = "../tests/poison/poisoner.rs"]
mod poisoner;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args.get(i).map(|n| n.parse::<u64>().expect("a number"));
    let choice = number(3).map(|one_in| poisoner::Choice {
        one_in,
        seed: number(4).unwrap_or(1),
        blocks: (
            number(5).unwrap_or(0) as u32,
            number(6).unwrap_or(u32::MAX.into()) as u32,
        ),
    });
    match poisoner::poison(args[1].as_ref(), args[2].as_ref(), choice) {
        Ok(count) => println!("{count} insertions"),
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1);
        }
    }
}
