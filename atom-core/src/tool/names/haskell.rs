//! Names of GHC: a package, a module and a name, encoded and with underscores between, and after them what the symbol is.
//!
//! In an encoded name the letters z and Z begin the code of a character that linkers would not take (`zi` is a full
//! stop).

/// What a symbol may be. Code is at `info`, `entry`, `slow` and `fast`.
const KINDS: [&str; 10] = [
    "info", "entry", "slow", "fast", "closure", "srt", "con", "static", "ret", "bytes",
];

/// The name for people: module and name. `None` if the symbol is not GHC's. C has names with underscores, too; so the
/// symbol must have a code, or belong to the module `Main`.
pub fn demangle(symbol: &str) -> Option<String> {
    let mut parts: Vec<&str> = symbol.split('_').collect();
    let all = parts.len();
    while parts.len() > 1 && parts.last().is_some_and(|part| KINDS.contains(part)) {
        parts.pop();
    }
    if parts.len() == all {
        return None;
    }
    let (module, name) = match parts[..] {
        [module, name] | [_, module, name] => (module, name),
        _ => return None,
    };
    let is_module = |part: &str| part.starts_with(|c: char| c.is_ascii_uppercase());
    let is_encoded =
        |part: &&str| part.contains(['z', 'Z']) && decoded(part).is_some_and(|d| d != **part);
    if !is_module(module) || name.is_empty() || (module != "Main" && !parts.iter().any(is_encoded))
    {
        return None;
    }
    Some(format!("{}.{}", decoded(module)?, decoded(name)?))
}

fn decoded(text: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            'z' => name.push(match rest.next()? {
                'a' => '&',
                'b' => '|',
                'c' => '^',
                'd' => '$',
                'e' => '=',
                'g' => '>',
                'h' => '#',
                'i' => '.',
                'l' => '<',
                'm' => '-',
                'n' => '!',
                'p' => '+',
                'q' => '\'',
                'r' => '\\',
                's' => '/',
                't' => '*',
                'u' => '_',
                'v' => '%',
                'z' => 'z',
                first @ '0'..='9' => {
                    let digits: String = std::iter::once(first)
                        .chain(rest.by_ref().take_while(|c| *c != 'U'))
                        .collect();
                    char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
                }
                _ => return None,
            }),
            'Z' => match rest.next()? {
                'L' => name.push('('),
                'R' => name.push(')'),
                'M' => name.push('['),
                'N' => name.push(']'),
                'C' => name.push(':'),
                'Z' => name.push('Z'),
                // Tuples: the number of their parts, and T, or H if they are unboxed.
                first @ '0'..='9' => {
                    let mut digits = String::from(first);
                    let end = loop {
                        match rest.next()? {
                            digit @ '0'..='9' => digits.push(digit),
                            end => break end,
                        }
                    };
                    let commas =
                        ",".repeat(digits.parse::<usize>().ok()?.min(100).saturating_sub(1));
                    match end {
                        'T' => name.push_str(&format!("({commas})")),
                        'H' => name.push_str(&format!("(#{commas}#)")),
                        _ => return None,
                    }
                }
                _ => return None,
            },
            c => name.push(c),
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn modules_and_names() {
        for (symbol, name) in [
            ("base_GHCziBase_map_info", "GHC.Base.map"),
            ("ghczmprim_GHCziClasses_zeze_entry", "GHC.Classes.=="),
            ("Main_main1_info", "Main.main1"),
            ("base_GHCziShow_zdfShowZ2T_con_info", "GHC.Show.$fShow(,)"),
            ("base_DataziOldList_lines_slow", "Data.OldList.lines"),
        ] {
            assert_eq!(demangle(symbol).as_deref(), Some(name), "{symbol}");
        }
        for other in [
            "stg_ap_p_fast",
            "SSL_SESSION_info",
            "gtk_size_info",
            "info",
            "main",
            "X_y_info",
            "Zip_size_info",
        ] {
            assert_eq!(demangle(other), None, "{other}");
        }
    }
}
