//! Depth of the tests: the checks that each change needs, or all checks.

use crate::source::Variant;

/// The environment variable that asks for all checks: `ATOM_TESTS=all`.
pub const VARIABLE: &str = "ATOM_TESTS";

/// Whether all builds of each test program and all programs of the system are to be checked.
/// `.ci/run` checks some of them, the command `nightly` all.
pub fn is_full() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "all")
}

/// Traits by which the judges that count choose builds: the compiler, the kind of object, and
/// `strip`. Builds that differ in optimisation or other options are left to the check of behaviour.
fn traits(variant: &Variant) -> Vec<&str> {
    const KINDS: [&str; 5] = ["nopie", "static", "staticpie", "bare", "barepie"];
    let mut words = variant.0.split('-');
    let mut traits: Vec<&str> = words.next().into_iter().collect();
    let kind = words.clone().find(|word| KINDS.contains(word));
    traits.push(kind.unwrap_or("pie"));
    traits.extend(words.find(|word| *word == "strip"));
    traits
}

/// The fewest builds, roughly, that have all traits together. Each step takes the build that adds
/// most traits, the first of several that add as many.
pub fn few(variants: &[Variant]) -> Vec<&Variant> {
    let mut missing: Vec<&str> = variants.iter().flat_map(traits).collect();
    missing.sort_unstable();
    missing.dedup();
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let gain = |v: &Variant| traits(v).iter().filter(|t| missing.contains(t)).count();
        let most = variants.iter().map(gain).max().unwrap_or(0);
        let Some(best) = variants.iter().find(|v| gain(v) == most) else {
            break;
        };
        missing.retain(|t| !traits(best).contains(t));
        chosen.push(best);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trait_is_among_the_few() {
        let all: Vec<Variant> = "gcc-O0 gcc-O2 gcc-O2-static clang-O2 clang-O2-nopie gcc-O3-strip"
            .split(' ')
            .map(|v| Variant(v.to_owned()))
            .collect();
        let few: Vec<&str> = few(&all).iter().map(|v| v.0.as_str()).collect();
        assert_eq!(few, ["gcc-O3-strip", "clang-O2-nopie", "gcc-O2-static"]);
    }
}
