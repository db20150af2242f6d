{ Exceptions, threads, floating point and a case in Pascal. }
program Mixed;
{$mode objfpc}{$h+}{$q+}
uses cthreads, SysUtils, Classes, Math;

type
  ERefused = class(Exception)
    Code: Integer;
  end;

  TWorker = class(TThread)
    First, Sum: Integer;
    procedure Execute; override;
  end;

function Act(N: Integer): Integer;
var
  E: ERefused;
begin
  case N mod 8 of
    0: Result := N + 3;
    1: Result := N * 5;
    2: Result := N - 7;
    3: begin
         E := ERefused.Create('refused');
         E.Code := N;
         raise E;
       end;
    4: Result := N xor $55;
    5: Result := N shl 2;
    6: Result := N div 3;
  else
    Result := -N;
  end;
end;

function Guarded(N: Integer): Integer;
begin
  try
    try
      Result := Act(N);
    except
      on E: ERefused do Result := E.Code * 100;
    end;
  finally
    Inc(Result);
  end;
end;

procedure TWorker.Execute;
var
  I: Integer;
begin
  for I := First to First + 299 do Sum := Sum + Guarded(I);
end;

var
  I, Sum, Total, Zero: Integer;
  Wave: Double;
  Workers: array[0..3] of TWorker;
  Words: TStringList;
begin
  Sum := 0;
  for I := 0 to 999 do Sum := Sum + Guarded(I);
  WriteLn('sum ', Sum);
  Total := 0;
  for I := 0 to 3 do begin
    Workers[I] := TWorker.Create(True);
    Workers[I].First := I;
    Workers[I].Start;
  end;
  for I := 0 to 3 do begin
    Workers[I].WaitFor;
    Total := Total + Workers[I].Sum;
    Workers[I].Free;
  end;
  WriteLn('total ', Total);
  Wave := 0;
  for I := 1 to 99 do Wave := Wave + Sin(I * 0.1) * Sqrt(I);
  WriteLn('wave ', Wave:0:6, ' ', Power(Wave, 1.5):0:4);
  Words := TStringList.Create;
  Words.CommaText := 'pear,apple,fig';
  Words.Sort;
  WriteLn(Words.CommaText);
  Zero := Words.Count - 3;
  try
    WriteLn(7 div Zero);
  except
    on E: EDivByZero do WriteLn('division');
  end;
  try
    PInteger(nil)^ := Zero;
  except
    on E: EAccessViolation do WriteLn('address');
  end;
  Words.Free;
  Halt(3);
end.
