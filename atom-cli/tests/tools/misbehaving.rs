//! A tool that makes the mistake which its first argument names.
use atom_tool::prelude::*;

#[analysis]
fn nothing(_value: Value) {}

fn instrument(program: &Program, args: &Args) -> Result {
    let first = program
        .first_proc()
        .and_then(|p| p.first_block())
        .ok_or("no code")?;
    match args.as_slice().first().copied().unwrap_or_default() {
        "panic" => panic!("the tool has lost its head"),
        "index" => {
            let empty: &[u64] = &args.as_slice()[..0].iter().map(|_| 0).collect::<Vec<_>>();
            first.add_call(Before, nothing, (EffAddrValue,));
            return Err(format!("never {}", empty[args.as_slice().len()]).into());
        }
        "error" => return Err("the tool does not like this program".into()),
        "condition" => {
            // The value of a condition at an instruction without one.
            first.first_inst().add_call(Before, nothing, (BrCondValue,));
        }
        other => return Err(format!("what is {other:?}?").into()),
    }
    Ok(())
}

atom_tool::tool!(instrument);
