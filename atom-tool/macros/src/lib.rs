//! The attribute `#[analysis]`, used through the crate `atom-tool`.
//!
//! It exists because a routine needs three things that no library function can
//! give it: the C calling convention, a symbol of its own that clashes with
//! nothing, and a handle that knows the parameter types.
//!
//! Only the function's signature matters, so the token stream is read by hand. A tool then builds
//! without a parser for all of Rust.
#![deny(missing_docs)]

use proc_macro::{Delimiter, Group, Ident, Spacing, Span, TokenStream, TokenTree};

/// Makes a function an analysis routine.
///
/// The function itself is exported as `atom_analysis_NAME`. In the tool the name stands for a
/// function without parameters that returns the routine's handle, a `Routine<(A, B, ...)>`, and
/// `add_call` takes that function. (A constant would do as well, but then no variable could have
/// the same name.)
///
/// `#[analysis(uninterrupted)]` is for a routine that holds a lock: while it runs,
/// signals wait, so that neither a handler nor a cancellation of the thread comes
/// interrupts it. That costs two system calls.
#[proc_macro_attribute]
pub fn analysis(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut words = attribute.into_iter();
    let uninterrupted = match words.next() {
        None => Ok(false),
        Some(TokenTree::Ident(word)) if word.to_string() == "uninterrupted" => Ok(true),
        Some(token) => Err(token),
    };
    let parsed = match (uninterrupted, words.next()) {
        (Err(token), _) | (_, Some(token)) => Err(Error::new(
            token.span(),
            "`#[analysis]` takes nothing but `uninterrupted`",
        )),
        (Ok(uninterrupted), None) => Function::parse(item).map(|function| {
            if uninterrupted {
                function.uninterrupted()
            } else {
                function
            }
        }),
    };
    match parsed {
        Ok(function) => function.expand(),
        Err(error) => error.expand(),
    }
}

struct Error {
    span: Span,
    message: &'static str,
}

impl Error {
    fn new(span: Span, message: &'static str) -> Self {
        Self { span, message }
    }

    fn expand(self) -> TokenStream {
        let text = format!("::core::compile_error!({:?});", self.message);
        respan(tokens(&text), self.span)
    }
}

fn tokens(text: &str) -> TokenStream {
    text.parse()
        .expect("the text written here is made of tokens")
}

fn respan(stream: TokenStream, span: Span) -> TokenStream {
    stream
        .into_iter()
        .map(|mut token| {
            if let TokenTree::Group(group) = &token {
                let inner = respan(group.stream(), span);
                token = TokenTree::Group(Group::new(group.delimiter(), inner));
            }
            token.set_span(span);
            token
        })
        .collect()
}

/// The parts of a function that the attribute needs.
struct Function {
    /// Attributes for the handle: documentation, conditions, lints.
    outer: TokenStream,
    /// All other attributes, which are for the function.
    inner: TokenStream,
    visibility: TokenStream,
    is_unsafe: bool,
    name: Ident,
    parameters: Group,
    types: Vec<TokenStream>,
    body: Group,
}

impl Function {
    fn parse(item: TokenStream) -> Result<Self, Error> {
        const WANTED: &str = "`#[analysis]` belongs before a function";
        let mut rest = item.into_iter().peekable();
        let (mut outer, mut inner) = (TokenStream::new(), TokenStream::new());
        let mut visibility = TokenStream::new();
        let mut is_unsafe = false;
        loop {
            let token = rest
                .next()
                .ok_or_else(|| Error::new(Span::call_site(), WANTED))?;
            match &token {
                TokenTree::Punct(p) if p.as_char() == '#' => {
                    let body = rest
                        .next()
                        .ok_or_else(|| Error::new(token.span(), WANTED))?;
                    let target = if goes_outside(&body) {
                        &mut outer
                    } else {
                        &mut inner
                    };
                    target.extend([token, body]);
                }
                TokenTree::Ident(word) => match word.to_string().as_str() {
                    "pub" => {
                        visibility.extend([token]);
                        if let Some(TokenTree::Group(group)) = rest.peek()
                            && group.delimiter() == Delimiter::Parenthesis
                        {
                            visibility.extend(rest.next());
                        }
                    }
                    "unsafe" => is_unsafe = true,
                    "extern" => match rest.next() {
                        Some(TokenTree::Literal(abi)) if abi.to_string() == "\"C\"" => {}
                        other => {
                            let span = other.map_or(token.span(), |t| t.span());
                            return Err(Error::new(span, "analysis routines are `extern \"C\"`"));
                        }
                    },
                    "fn" => break,
                    _ => {
                        return Err(Error::new(
                            token.span(),
                            "an analysis routine is a plain `fn`",
                        ));
                    }
                },
                _ => return Err(Error::new(token.span(), WANTED)),
            }
        }
        let Some(TokenTree::Ident(name)) = rest.next() else {
            return Err(Error::new(Span::call_site(), WANTED));
        };
        let parameters = match rest.next() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => group,
            _ => {
                return Err(Error::new(
                    name.span(),
                    "an analysis routine cannot be generic",
                ));
            }
        };
        let body = match rest.next() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => group,
            other => {
                let span = other.map_or(name.span(), |t| t.span());
                return Err(Error::new(span, "an analysis routine returns nothing"));
            }
        };
        let types = parameter_types(&parameters)?;
        Ok(Self {
            outer,
            inner,
            visibility,
            is_unsafe,
            name,
            parameters,
            types,
            body,
        })
    }

    /// Runs the body with signals blocked, on a stack of the runtime's.
    fn uninterrupted(mut self) -> Self {
        let mut work = tokens("|_|");
        work.extend([TokenTree::Group(self.body.clone())]);
        let mut body = tokens("::atom_tool::private::Uninterrupted::run");
        body.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, work))]);
        self.body = Group::new(Delimiter::Brace, body);
        self
    }

    fn expand(self) -> TokenStream {
        let name = self.name.to_string();
        let plain = name.trim_start_matches("r#");
        let types = || -> TokenStream {
            let comma = || tokens(",");
            self.types
                .iter()
                .flat_map(|t| [t.clone(), comma()])
                .collect()
        };
        let list = |delimiter| TokenStream::from(TokenTree::Group(Group::new(delimiter, types())));
        let parenthesised = || list(Delimiter::Parenthesis);

        let mut inside = self.inner.clone();
        inside.extend(tokens(&format!(
            "#[unsafe(export_name = \"atom_analysis_{plain}\")]"
        )));
        if self.is_unsafe {
            inside.extend(tokens("unsafe"));
        }
        inside.extend(tokens("extern \"C\" fn"));
        inside.extend([
            TokenTree::Ident(self.name.clone()),
            TokenTree::Group(self.parameters.clone()),
            TokenTree::Group(self.body.clone()),
        ]);
        inside.extend(tokens(&format!(
            "#[unsafe(export_name = \"atom_params_{plain}\")]
             static PARAMS: ::atom_tool::private::ParamList = ::atom_tool::private::ParamList::of::<"
        )));
        inside.extend(parenthesised());
        inside.extend(tokens(">();"));
        // SAFETY of the expansion: the address is the address of an `extern "C"` function with
        // exactly these parameters.
        let mut pointer = TokenStream::from(TokenTree::Ident(self.name.clone()));
        pointer.extend(tokens(if self.is_unsafe {
            "as unsafe extern \"C\" fn"
        } else {
            "as extern \"C\" fn"
        }));
        pointer.extend(parenthesised());
        pointer.extend(tokens(&format!("as *const (), {plain:?}")));
        let mut call = tokens("::atom_tool::private::routine");
        call.extend([TokenTree::Group(Group::new(
            Delimiter::Parenthesis,
            pointer,
        ))]);
        inside.extend(tokens("unsafe"));
        inside.extend([TokenTree::Group(Group::new(Delimiter::Brace, call))]);
        let mut out = self.outer.clone();
        out.extend(self.visibility.clone());
        out.extend(tokens("fn"));
        out.extend([TokenTree::Ident(self.name.clone())]);
        out.extend(tokens("() -> ::atom_tool::Routine<"));
        out.extend(parenthesised());
        out.extend(tokens(">"));
        out.extend([TokenTree::Group(Group::new(Delimiter::Brace, inside))]);
        out
    }
}

/// True for the attributes that the handle's function gets.
fn goes_outside(body: &TokenTree) -> bool {
    let TokenTree::Group(group) = body else {
        return false;
    };
    let Some(TokenTree::Ident(word)) = group.stream().into_iter().next() else {
        return false;
    };
    let word = word.to_string();
    [
        "doc",
        "cfg",
        "allow",
        "expect",
        "warn",
        "deny",
        "forbid",
        "deprecated",
    ]
    .contains(&word.as_str())
}

/// The types of a parameter list.
fn parameter_types(parameters: &Group) -> Result<Vec<TokenStream>, Error> {
    let mut types = Vec::new();
    let mut pattern = true;
    let mut current = TokenStream::new();
    let mut depth = 0i32;
    let (mut joined, mut minus) = (false, false);
    for token in parameters.stream() {
        let span = token.span();
        if let TokenTree::Punct(p) = &token {
            let (after_joint, after_minus) = (joined, minus);
            joined = p.spacing() == Spacing::Joint;
            minus = p.as_char() == '-';
            match p.as_char() {
                // A lone colon, not half of a path's.
                ':' if pattern && !joined && !after_joint => {
                    pattern = false;
                    continue;
                }
                ',' if depth == 0 => {
                    if pattern {
                        return Err(Error::new(span, "a parameter needs a type"));
                    }
                    types.push(std::mem::take(&mut current));
                    pattern = true;
                    continue;
                }
                '<' => depth += 1,
                '>' if !after_minus => depth -= 1,
                _ => {}
            }
        } else {
            (joined, minus) = (false, false);
        }
        if !pattern {
            current.extend([token]);
        } else if matches!(&token, TokenTree::Ident(word) if word.to_string() == "self") {
            return Err(Error::new(span, "an analysis routine is not a method"));
        }
    }
    if !pattern {
        types.push(current);
    }
    Ok(types)
}
