(* Effects, domains and exceptions through fibers in OCaml 5. *)
open Effect
open Effect.Deep

type _ Effect.t += Ask : int -> int t | Stop : unit t

exception Broken of int

let rec work n = if n = 0 then 0 else if n mod 50 = 7 then perform (Ask n) + work (n - 1) else 1 + work (n - 1)

let run n =
  match_with work n
    {
      retc = (fun v -> v);
      exnc = (function Broken k -> -k | e -> raise e);
      effc =
        (fun (type a) (e : a t) ->
          match e with
          | Ask n ->
              Some
                (fun (k : (a, _) continuation) ->
                  if n = 107 then discontinue k (Broken n) else continue k (n * 2))
          | _ -> None);
    }

let () =
  Printf.printf "run %d %d\n" (run 90) (run 200);
  let domains = List.init 3 (fun i -> Domain.spawn (fun () -> List.fold_left ( + ) 0 (List.init 40 (fun k -> run (k + i))))) in
  List.iter (fun d -> Printf.printf "domain %d\n" (Domain.join d)) domains;
  let gen = Seq.take 5 (Seq.iterate (fun x -> (x * 3) + 1) 1) in
  Seq.iter (Printf.printf "%d ") gen;
  let lots = Array.init 100 (fun i -> Array.make 1000 (float i)) in
  Gc.compact ();
  Printf.printf "%g\n" (Array.fold_left (fun s a -> s +. a.(7)) 0. lots);
  try perform Stop with Unhandled _ -> print_endline "unhandled"
